"""Prepare a build: combine its options with what is known of INPUT before any worker starts."""

from __future__ import annotations

import json
import os
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from shardwright.errors import UsageError
from shardwright.format import naming
from shardwright.format.manifest import read_manifest
from shardwright.format.schema import POSITIONS, WORDS, ExampleSchema, Feature, Source
from shardwright.pipelines.job.schema import (
    as_encoded,
    choose_schema,
    read_option_classes,
    refuse_options,
)
from shardwright.pipelines.options.build import BuildOptions, provenance_of, with_given_names
from shardwright.pipelines.runners.beam_options import is_local, num_processes
from shardwright.schemas.ready import OBJECTS, READY_SCHEMAS, WITHOUT_IMAGE
from shardwright.sizes import counted
from shardwright.storage.addresses import absolute, is_remote
from shardwright.storage.folder import Folder
from shardwright.transforms.changes.known_files import KnownFile
from shardwright.transforms.features.rows import FeatureHashes
from shardwright.transforms.features.vocabularies import VocabularyRules, indexed_features
from shardwright.transforms.images.options import EncodeOptions, Overlays
from shardwright.transforms.inputs.boxes import AREA, SEGMENTATION
from shardwright.transforms.inputs.boxes import LABEL as OBJECT_LABEL
from shardwright.transforms.inputs.detection import detect_source
from shardwright.transforms.inputs.folder_contents import FolderListings, has_wildcard
from shardwright.transforms.inputs.formats.box_tables import Objects
from shardwright.transforms.inputs.formats.tables import TableSource, open_label_table
from shardwright.transforms.inputs.input_files import shown
from shardwright.transforms.inputs.source import MAIN_IMAGE, InputSource, SourceRequest
from shardwright.transforms.inputs.spool import UnwrittenFolder, forget_lost_spools
from shardwright.transforms.output_state import OutputRequest, check_output
from shardwright.transforms.partial_inputs import PartialInputs
from shardwright.transforms.publish.companions import TfdsFiles
from shardwright.transforms.publish.fail_on import FailOnCheck
from shardwright.transforms.publish.near_duplicates import NearDuplicateList
from shardwright.transforms.publish.publication import Publication
from shardwright.transforms.publish.report_file import Report
from shardwright.transforms.splits.split_lists import SplitLists
from shardwright.transforms.splits.split_rules import SplitDraw, SplitRule, rule_for_additions
from shardwright.transforms.versions.additions import Append, KnownDataset, check_gone
from shardwright.transforms.write.clearance import PlanCheck
from shardwright.transforms.write.copied_records import CopiedRecords
from shardwright.transforms.write.signal_measures import MeasuredSignals
from shardwright.transforms.write.stored_records import StoredRecords
from shardwright.transforms.write.transformed_records import TransformedRecords
from shardwright.transforms.write.write_job import RecordMaker, WriteJob

Detect = Callable[[SourceRequest], InputSource]
_LOCAL_BUCKETS, _REMOTE_BUCKETS = 8, 1024


@dataclass(frozen=True, eq=False)
class BuildJob:
    """The options and the source of a build, and the configuration of the graph derived from them.

    Attributes:
        options: Options of the command line.
        source: INPUT in its detected format.
        label_table: Table of `--labels`, or None.
        class_names: From `--class-names`, `--schema` or the source; None to learn them.
        spool: The folder for what a build keeps before its plan is made.
        schema: The features of the references, without learned vocabularies.
        known: The dataset that the build adds records to, or None.
    """

    options: BuildOptions
    source: InputSource
    label_table: TableSource | None
    class_names: tuple[str, ...] | None
    spool: Folder
    schema: ExampleSchema
    known: KnownDataset | None = None

    @property
    def split_rule(self) -> SplitRule | None:
        """The rule of the records that are drawn: those that `known` does not have."""
        rule = self.options.split
        return rule if self.known is None else rule_for_additions(rule)

    @property
    def group_rule(self) -> SplitRule | None:
        """The rule by which a group has its split by itself; None without groups."""
        rule = self.split_rule
        has_own = self.options.group_column is not None and rule is not None and not rule.is_exact
        return rule if has_own else None

    @property
    def split_draw(self) -> SplitDraw | None:
        """The draw of all records together; None if each record has its split by itself."""
        rule, stratify = self.split_rule, self.options.stratify and self.known is None
        if self.splits_given or rule is None or not (stratify or rule.is_exact):
            return None
        return SplitDraw(rule, stratify, grouped=self.options.group_column is not None)

    @property
    def known_file(self) -> KnownFile | None:
        return None if self.known is None else self.known.file

    @property
    def append(self) -> Append | None:
        return None if self.known is None else self.known.append

    @property
    def plan_checks(self) -> Sequence[PlanCheck]:
        append = self.append
        return () if append is None else (partial(check_gone, append),)

    @property
    def splits_given(self) -> bool:
        if self.label_table is not None and self.label_table.states_splits:
            return True
        redrawn = (
            self.options.split is not None or bool(self.options.split_ids)
        ) and self.source.splits_can_be_redrawn
        return self.source.states_splits and not redrawn

    @cached_property
    def split_lists(self) -> SplitLists | None:
        return (
            SplitLists.parse(self.options.split_ids, self.options.storage)
            if self.options.split_ids
            else None
        )

    @property
    def vocabulary_rules(self) -> VocabularyRules:
        # The user's own schema with a label, so that a dataset without labels fails.
        is_own = self.options.schema not in (None, *READY_SCHEMAS)
        return VocabularyRules(
            class_names=self.class_names,
            labels_are_names=label_source(self.source, self.label_table).labels_are_names,
            needs_label=is_own and self.schema.label is not None,
            earlier=None if self.known is None else self.known.vocabularies,
        )

    @property
    def feature_hashes(self) -> FeatureHashes:
        """The rule for hashes of features; with labels where the index has no names of them."""
        indices = label_source(self.source, self.label_table).labels_are_indices
        return FeatureHashes(self.schema, indices or bool(self.options.transforms))

    @property
    def num_buckets(self) -> int:
        """The number of sort buckets.

        Locally one process holds the whole plan, elsewhere a bucket must fit a small worker.
        """
        return _LOCAL_BUCKETS if is_local(self.options.beam_args) else _REMOTE_BUCKETS

    @property
    def stored_schema(self) -> ExampleSchema:
        """The features of the records; of a copied dataset exactly its own."""
        return self.source.copied_schema or self.schema

    @property
    def digest_settings(self) -> bytes:
        """The settings that determine a shard's bytes, beside its references."""
        settings = self.options.settings
        relevant = {
            key: settings[key]
            for key in ("encode", "check", "feature_names", "transforms", "signals")
            if key in settings
        }
        return json.dumps({**relevant, "schema": self.schema.to_json()}, sort_keys=True).encode()

    @cached_property
    def encode(self) -> EncodeOptions:
        """The options of images.

        Raises:
            UsageError: They would move images under boxes or outlines.
        """
        features = self.schema.features
        boxes = (each.name for each in features if each.kind in POSITIONS)
        outlines = (each.name for each in features if each.column_name == SEGMENTATION)
        # Those of YOLO are fractions; of COCO, areas are in pixels, too.
        has_areas = any(each.column_name == AREA for each in features)
        in_pixels = self.source.has_pixel_outlines or has_areas
        overlays = Overlays(next(boxes, ""), next(outlines, "") if in_pixels else "")
        try:
            return replace(self.options.encode, overlays=overlays)
        except ValueError as error:
            raise UsageError(f"--{error}") from error

    @property
    def write_job(self) -> WriteJob:
        options = self.options
        return WriteJob(
            options.root,
            self.stored_schema,
            self._maker,
            options.threads,
            options.storage,
            extra=MeasuredSignals() if options.signals else None,
            processes=num_processes(options.beam_args),
        )

    @property
    def _maker(self) -> RecordMaker:
        options, source = self.options, self.source
        if source.copied_schema is not None:
            return CopiedRecords()
        if options.transforms:
            return TransformedRecords(options.check, self.encode, options.transforms)
        return StoredRecords(options.check, self.encode)

    def describe_inputs(self) -> str:
        """Return the detected format of INPUT, the table of labels and the label, for the log."""
        table, label = self.label_table, self.schema.label
        labels = (
            "" if table is None else f"; by {table.layout.key}, labels from {table.description}"
        )
        rule = label_source(self.source, table).labels_from
        if label is not None and rule.startswith("column ") and not rule.endswith(repr(label.name)):
            labels += f"; {rule} is stored as the feature {label.name!r}"
        return f"INPUT is {self.source.description}{labels}"

    @property
    def output_request(self) -> OutputRequest:
        options = self.options
        learned = tuple(
            feature.name
            for feature in indexed_features(self.schema)
            if feature.kind not in WORDS
            and not feature.names
            and (feature.source != Source.LABEL or self.class_names is None)
        )
        partial = PartialInputs(options.accept_partial, learned)
        return OutputRequest(
            options.root, options.settings, options.if_exists, input=options.input, partial=partial
        )

    @property
    def publication(self) -> Publication:
        options, append = self.options, self.append
        near = [NearDuplicateList(append)] if options.near.is_on else []
        return Publication(
            root=options.root,
            name=options.name,
            version=options.version,
            schema=self.stored_schema,
            settings=options.settings,
            provenance=provenance_of(options),
            limits=options.limits,
            companions=(Report(options.compared), *near, TfdsFiles()),
            checks=(FailOnCheck(options.fail_on or (), options.compared, append),),
            grows=append is not None,
        )


def prepare_job(options: BuildOptions, detect: Detect = detect_source) -> BuildJob:
    """Check INPUT, the tables and OUTPUT, so that mistakes fail before any worker starts.

    Args:
        options: Options of the build.
        detect: Finds the format of INPUT.

    Raises:
        UsageError: INPUT is invalid, or an option does not fit it.
        BuildError: A table cannot be read, or OUTPUT belongs to another build.
    """
    spool = options.root.below(naming.SPOOL_DIR)
    job = describe_job(options, spool, detect)
    # After INPUT was detected, but before it is listed, which may take hours.
    check_output(job.output_request)
    if options.compared is not None:
        read_manifest(options.compared)
    check_own_files(options)
    forget_lost_spools(
        options.root,
        finished_may_stay=options.if_exists != "overwrite" and not options.plans_by_content,
    )
    return job


def describe_job(
    options: BuildOptions, spool: Folder | None = None, detect: Detect = detect_source
) -> BuildJob:
    """Return a job without checking OUTPUT: `plan` reports its state instead of failing.

    Args:
        options: Options of the command line.
        spool: Folder for spooled bytes; None for a plan, which writes nothing.
        detect: Finds the format of INPUT.

    Raises:
        UsageError: INPUT is invalid, or an option does not fit it.
        BuildError: A table cannot be read.
    """
    read = options.read_schema()
    spool = spool or UnwrittenFolder(
        options.root.path(naming.SPOOL_DIR),
        options.storage,
        options.root.uri,
        options.plans_by_content,
    )
    source = detect(request_for(options, spool, read))
    table = None
    if options.labels is not None:
        # Its paths name files of INPUT, so both have the same root.
        root = options.image_root or source.label_paths_root or options.input
        columns = {**options.columns, "size": None}
        kinds = {each.column_name: each.kind for each in read.column_features} if read else {}
        table = open_label_table(
            SourceRequest(options.labels, "--labels", columns, options.storage, kinds=kinds),
            key=options.labels_key,
            root=absolute(root),
            folders=source.folders,
            finder=Objects(),
        )
    class_names = read_option_classes(options)
    if source.copied_schema is None:
        schema, source, table = choose_schema(options, read, source, table)
        class_names = class_names or schema.class_names
        schema = as_encoded(replace(schema, class_names=()), options.encode)
    else:
        schema = with_given_names(source.copied_schema)
        refuse_options(options, schema, copies=True)
    class_names = class_names or label_source(source, table).class_names
    job = BuildJob(options, source, table, class_names, spool, schema)
    for option, verb, given in (
        ("--split", "draws", options.split),
        ("--split-ids", "lists", job.split_lists),
    ):
        if given is not None and job.splits_given:
            raise UsageError(
                f"{option} {verb} splits, but INPUT already states them (split folders or a split "
                f"column): leave {option} out"
            )
    _ = job.encode  # fails now if it does not fit the schema, or feature names clash
    return job


def request_for(
    options: BuildOptions, spool: Folder, declared: ExampleSchema | None
) -> SourceRequest:
    """Return the request for INPUT; `declared` is the schema of `--schema`, if it was read."""
    objects = OBJECTS if options.schema == "detection" else ()
    features = objects if declared is None else declared.column_features
    image = MAIN_IMAGE if declared is None else declared.image
    columns = options.columns
    if options.labels is not None:  # the table has all others
        columns = {**dict.fromkeys(columns), "size": options.size_column}
    files = [("--labels", options.labels), ("--class-names", options.class_names)]
    files += [("--split-ids", value.rpartition("=")[2]) for value in options.split_ids]
    return SourceRequest(
        options.input,
        columns=columns,
        storage=options.storage,
        image_root=options.image_root,
        allow_outside=options.allow_outside,
        spool=spool,
        kinds={each.column_name: each.kind for each in features},
        shapes={each.column_name: each.stored[0].shape for each in features},
        image=None if options.schema in WITHOUT_IMAGE else image,
        input_format=options.input_format,
        changes=options.changes,
        top_folders=options.top_folders,
        read_elsewhere={absolute(path): option for option, path in files if path},
    )


def label_source(source: InputSource, table: TableSource | None) -> InputSource:
    """Return the facts about where labels come from: the label table if it has such a column."""
    return source if table is None or table.layout.label is None else table


def check_own_files(options: BuildOptions) -> None:
    """Check the links among the entries of INPUT if OUTPUT is to be overwritten.

    Raises:
        UsageError: One leads to a file or folder of OUTPUT.
    """
    source, output = absolute(options.input), options.root.uri
    if options.if_exists != "overwrite" or is_remote(source) or not os.path.isdir(output):
        return
    # With a slash at the end, so that `out` is not the beginning of `out2`.
    own = os.path.join(os.path.realpath(output), "")
    if has_wildcard(source):
        paths = [path for path, _ in FolderListings(options.storage).matching(source)]
        links = iter({os.path.dirname(path) for path in paths} | set(filter(os.path.islink, paths)))
    else:
        links = _links_below(source, set())
    for link in links:
        if os.path.join(real := os.path.realpath(link), "").startswith(own):
            raise UsageError(
                f"INPUT {options.input} leads to {real}, which is in OUTPUT {options.output} and "
                f"would be overwritten ({link}): choose another OUTPUT"
            )


def _links_below(folder: str, seen: set[str]) -> Iterator[str]:
    """Yield the links in a folder and in those below it; an entry that is no link costs nothing."""
    # By the real path, because links may form a circle.
    real = os.path.realpath(folder)
    if real in seen or not os.path.isdir(real):
        return
    seen.add(real)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield entry.path
            if entry.is_dir():
                yield from _links_below(entry.path, seen)


_CLASS_FOLDERS = "put the images of each class in a folder of their own below INPUT"


def class_lines(job: BuildJob, schema: ExampleSchema) -> Iterator[str]:
    """Yield the number, first names and rule of the classes, and a warning without any choice.

    Args:
        job: The build.
        schema: Its features with all class names.
    """
    names = class_names_of(schema)
    if names:
        given = ", named by --class-names" if job.options.class_names is not None else ""
        rule = classes_from(job, schema)
        yield f"{counted(len(names), 'class')}: {shown(names)}; from {rule}{given}"
    if schema.label is not None and len(names) == 1:
        yield f"warning: every image has the label {names[0]!r}: {_fix(job, names[0])}"
    by_look = defaultdict(list)
    for name in names:
        letters = unicodedata.normalize("NFKC", name).casefold().split()
        # Such as spaces without width, which nobody sees.
        seen = (sign for sign in "".join(letters) if unicodedata.category(sign) != "Cf")
        by_look["".join(seen)].append(name)
    if alike := [name for look in by_look.values() if len(look) > 1 for name in look]:
        yield (
            "warning: classes that differ only in case, width, spaces or invisible characters: "
            f"{shown([repr(name) for name in alike])}; if two are one class, give them one name"
        )
    # A user may expect labels: not of a dataset's copy, captions or a schema.
    source = job.source
    has_others = source.columns is None and bool(source.features)
    is_default = job.options.schema is None and source.copied_schema is None
    if not names and is_default and job.schema.label is not None and not has_others:
        yield f"warning: no image has a label: {_fix(job)}"


def class_names_of(schema: ExampleSchema) -> tuple[str, ...]:
    """Return the names of the classes: of the label, of objects, or of the only such feature."""
    feature = _feature_of(schema)
    return () if feature is None else schema.names_of(feature)


def _feature_of(schema: ExampleSchema) -> Feature | None:
    objects = (feature for feature in schema.features if feature.name == OBJECT_LABEL)
    return schema.main_classes or next(objects, None)


def classes_from(job: BuildJob, schema: ExampleSchema) -> str:
    """Return where the classes come from: "" without any."""
    feature, source = _feature_of(schema), label_source(job.source, job.label_table)
    if feature is None:
        return ""
    if source.columns is not None and feature is not schema.label:
        return f"column {feature.column_name!r}"
    return f"{source.labels_from}{' of --labels' * (source is job.label_table)}"


def _fix(job: BuildJob, only: str = "") -> str:
    """Return how to give labels, if there are none or `only` one."""
    source = label_source(job.source, job.label_table)
    if source.columns is not None:
        return "name the column of the labels with --label-column"
    deeper = f"if the classes are the folders in {only}/, give that as INPUT; else " if only else ""
    return f"{deeper}{_CLASS_FOLDERS}, or give a table with --labels"
