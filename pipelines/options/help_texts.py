"""The texts of `build --help` and `--help-all`."""

from __future__ import annotations

DESCRIPTION = {
    "build": "Convert images and labels to fixed-size, globally shuffled TFRecord shards of "
    "tf.Example.",
    "plan": "Show the shards, records and bytes that `build` would write, from names and sizes.",
}
USAGE = "%(prog)s INPUT OUTPUT [options]"
_EXAMPLES = """\
examples
  shardwright build photos/ dataset/
  shardwright build photos/ dataset/ --split train=0.8,test=0.2 --records-per-shard 1024
  shardwright build labels.csv dataset/ --label-column species
  shardwright build coco/annotations/instances_train2017.json dataset/ --image-root coco/train2017
  shardwright build s3://raw/photos gs://training/photos --encode jpeg --resize 256x256
"""
_MORE_EXAMPLES = """\
  shardwright build photos/ dataset/ --split test=5000,train=rest --stratify --duplicates drop
  shardwright build labels.csv dataset/ --label-column species --group-column patient
  shardwright build 'shards/train-*.tar' dataset/
  shardwright build photos/ dataset/ --labels labels.csv --label-column species
  shardwright build photos/ dataset/ --encode jpeg --resize 256x256 --check decode
  shardwright build dataset/ larger-shards/ --shard-size 500MB
  shardwright build s3://raw/photos dataset/ --storage-option endpoint=http://minio:9000

  shardwright build gs://raw/photos gs://training/photos \\
      --runner DataflowRunner --project p --region r --temp_location gs://b/tmp
"""
_NOTES = """\
Run the same command again to resume a stopped build; a finished one is "up to date" in seconds.
All options of Beam are accepted, such as --runner (default: FnApiRunner, in this process).
Exit codes: 0 done, 1 the build failed, 2 wrong usage.
"""
SHORT = f"""\
{_EXAMPLES}
{_NOTES}
--help-all lists every option and input format.
"""
LONG = f"""\
INPUT, OUTPUT and tables are local paths, s3://BUCKET/..., gs://BUCKET/... or az://CONTAINER/...,
in any mix. INPUT is one of
  DIR/<class>/**            class folders: the first folder is the label
  DIR/<split>/<class>/**    split folders, if every first-level folder has the name of a split
                            (train, val, validation, test, ...); --top-folders if only some have
  DIR/*                     images without labels
  TABLE                     .csv .tsv .jsonl .parquet with a column of image paths, relative to the
                            table's folder; other columns become features
or one of the input formats listed at the end. The first line of the log is the detected format.

{_EXAMPLES}{_MORE_EXAMPLES}
For schedulers that pass only named parameters: --input INPUT --output OUTPUT.
{_NOTES}"""
