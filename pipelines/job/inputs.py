"""Request INPUT and the table of labels as the options of a build state."""

from __future__ import annotations

from shardwright.format.schema import ExampleSchema
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.options.schema import kinds_of, main_image, shapes_of
from shardwright.schemas.ready import COLUMNS
from shardwright.storage.addresses import absolute
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.source import InputSource, SourceFacts, SourceRequest
from shardwright.transforms.inputs.tables.table_layout import TableFacts
from shardwright.transforms.inputs.tables.table_look import open_label_table


def request_for(
    options: BuildOptions, spool: Folder, declared: ExampleSchema | None
) -> SourceRequest:
    """Return the request for INPUT; `declared` is the schema of `--schema`, if it was read."""
    stated = declared or COLUMNS.get(options.schema or "")
    return SourceRequest(
        options.input,
        columns=_columns_of_input(options),
        storage=options.storage,
        image_root=options.image_root,
        allow_outside=options.allow_outside,
        spool=spool,
        kinds=kinds_of(stated),
        shapes=shapes_of(stated),
        image=main_image(options.schema, declared),
        input_format=options.input_format,
        changes=options.changes,
        top_folders=options.top_folders,
    )


def _columns_of_input(options: BuildOptions) -> dict[str, str | None]:
    """Return the column options for INPUT: with --labels, only --size-column is one of them."""
    if options.labels is None:
        return options.columns
    return {**dict.fromkeys(options.columns), "size": options.size_column}


def label_table_of(
    options: BuildOptions, labels: str, source: InputSource, read: ExampleSchema | None
) -> TableFacts:
    """Return the table of labels. Its paths name files of INPUT, so both have the same root."""
    root = options.image_root or source.facts.label_paths_root or options.input
    columns = {**options.columns, "size": None}
    request = SourceRequest(labels, "--labels", columns, options.storage, kinds=kinds_of(read))
    folders = source.facts.folders
    return open_label_table(request, key=options.labels_key, root=absolute(root), folders=folders)


def label_facts(source: InputSource, table: TableFacts | None) -> SourceFacts:
    """Return the facts about where labels come from: the label table if it has such a column."""
    return source.facts if table is None or table.layout.label is None else table
