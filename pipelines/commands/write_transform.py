"""Write a PCollection of records as a dataset, as a step of a pipeline of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.job.graph import build_graph
from shardwright.pipelines.options.python import PYTHON_ERRORS, Split, record_options
from shardwright.transforms.features.lists import value_type
from shardwright.transforms.inputs.formats.records import RecordSource, open_records, simple_record
from shardwright.transforms.inputs.list_images import SpoolRecords

# What a pipeline's options say about its workers, beside the runner.
_OF_WORKERS = (
    "flink_master", "job_endpoint", "max_num_workers", "project", "region", "sdk_container_image",
    "temp_location",
)  # fmt: skip


class WriteRecords(beam.PTransform):
    """A transform that writes records as a dataset, and returns its Manifest when it is published.

        records | sw.WriteRecords("gs://training/photos", like={"id": "a", "image": png})

    Records are those of `sw.write`, with images or without, each with its key `id`: a PCollection
    has no order to number them by. Their images go to the spool once. It cannot be resumed: another
    run of the pipeline writes all shards again. If the dataset is finished, it needs
    `if_exists="overwrite"` for other records; the same ones leave the dataset as it is.

    Args:
        output: The dataset's folder, which workers reach.
        like: A record with the keys and types of all, because the schema must be known before the
            pipeline runs, when no record of a PCollection is; its values are not written.
        schema: As for `sw.write`, inferred from `like`, and so are `split` and `options`, but those
            of Beam are the pipeline's own.

    Raises:
        UsageError: `like` has no id, the type of one of its keys is unknown, or an option is
            invalid.
    """

    def __init__(
        self,
        output: str,
        *,
        like: Mapping[str, Any],
        schema: ExampleSchema | str | None = None,
        split: Split | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._output, self._schema, self._split = output, schema, split
        self._options = options
        self._like = simple_record(like)

    @PYTHON_ERRORS
    def expand(self, records: beam.PCollection) -> beam.PCollection:
        # The pipeline's runner, and its options that decide what workers reach.
        given = records.pipeline.options.get_all_options(drop_default=True)
        chosen = {name: given[name] for name in _OF_WORKERS if name in given}
        runner = {"runner": type(records.pipeline.runner).__name__, **chosen}
        options = record_options(self._output, self._schema, {**runner, **self._options})
        if options.if_exists == "append":
            raise UsageError("WriteRecords has no --if-exists append: use sw.write or sw.Writer")
        options = options.for_records([self._like]).with_split(self._split, self._like)
        job = prepare_job(options, partial(open_records, [self._like]))
        source = job.source
        assert isinstance(source, RecordSource)
        if source.records.numbered:
            raise UsageError("records of a PCollection need the key 'id': they have no order")
        for column in source.records.schema:
            if pa.types.is_null(value_type(column.type)):
                raise UsageError(
                    f"like: key {column.name!r} has no value, and no record of a PCollection is "
                    "known before the pipeline runs: give a value, or declare the key, such as "
                    f'schema=ExampleSchema((..., Feature("{column.name}", FeatureKind.FLOAT32)))'
                )
        listed = records | "SpoolRecords" >> SpoolRecords(source)  # references
        return build_graph(records.pipeline, job, listed)  # one Manifest
