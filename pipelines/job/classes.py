"""Report the classes of a plan or build, and where they come from."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator

from shardwright.format.schema import ExampleSchema, Feature
from shardwright.pipelines.job.build import BuildJob, label_source
from shardwright.sizes import counted
from shardwright.transforms.inputs.boxes import LABEL as OBJECT_LABEL
from shardwright.transforms.inputs.top_folders import shown

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
