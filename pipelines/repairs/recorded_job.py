"""The build that made a dataset, from the command that its manifest records.

Without its code and storage options: the dataset may be of a stranger.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence

from shardwright.errors import UsageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.pipelines.job.build import BuildJob, describe_job
from shardwright.pipelines.options.arguments import make_parser, parse_words, read_options
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.options.python import INPUT as PYTHON_RECORDS
from shardwright.storage.addresses import HIDDEN
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.spool import forget_lost_spools
from shardwright.transforms.output_state import differences

_STORAGE = "--storage-option"


def recorded_job(
    manifest: Manifest,
    root: Folder,
    moved: str | None = None,
    storage: Sequence[str] = (),
    words: Sequence[str] = (),
) -> BuildJob:
    """Return the job that built a dataset, in this process whatever runner the build had.

    Args:
        manifest: The manifest of the dataset.
        root: Its folder.
        moved: INPUT if it has moved, else None.
        storage: Values of `--storage-option`, such as credentials.
        words: Further options of `build`, such as those that run code.

    Raises:
        UsageError: INPUT is not there, the settings are not those of the dataset, or Python wrote
            it.
        BuildError: A table cannot be read.
    """
    if manifest.provenance.get("input") == PYTHON_RECORDS and moved is None:
        raise UsageError("a Python program wrote this dataset, so there is no INPUT to read again")
    input_and_output = [str(manifest.provenance.get("input") or ""), root.uri]
    command = manifest.provenance.get("command")
    # Without `shardwright build`.
    recorded = shlex.split(command)[2:] if command else input_and_output
    given = [word for value in storage for word in (_STORAGE, value)]
    own = _parse([*input_and_output, *words])
    # The user's words come last, so they win over the recorded ones.
    known = _parse([*_without_storage(recorded), *words, *given])
    known.input = moved or known.input
    # The dataset may have been moved or copied since.
    known.output, known.name, known.version = root.uri, manifest.name, manifest.version
    known.if_exists, known.fail_on, known.against = "resume", None, None
    _check_code(known, own)
    known.transform = own.transform
    for name, value in vars(known).items():
        # Signed URLs lose their signature in the manifest.
        if name != "storage_option" and HIDDEN in str(value):
            what = "--input" if name == "input" else f"--{name.replace('_', '-')} after --"
            raise UsageError(f"the manifest hides a secret in {name}: give {what}")
    options = read_options(BuildOptions, known)
    if details := differences(manifest.settings, options.settings):
        raise UsageError(
            f"the options are not those of the build ({details}): give the options of its command "
            "after --, such as `shardwright repair DATASET -- --seed 7`"
        )
    forget_lost_spools(options.root, finished_may_stay=False)  # images are needed again
    return describe_job(options, options.root.below(naming.SPOOL_DIR))


def _parse(words: Sequence[str]) -> argparse.Namespace:
    try:
        return parse_words(make_parser("build"), words)[0]
    except UsageError as error:
        raise UsageError(f"the recorded command cannot be read: {error}") from error


def _check_code(known: argparse.Namespace, own: argparse.Namespace) -> None:
    """Raise UsageError for code that only the manifest names: a stranger may have written it."""
    # `--transform` adds up: the recorded functions come before those that the user gives.
    recorded = [*known.transform[: len(known.transform) - len(own.transform)]]
    if recorded and recorded != own.transform:
        words = " ".join(f"--transform {shlex.quote(spec)}" for spec in recorded)
    # A schema file is code as well.
    elif str(known.schema).lower().endswith(".py") and known.schema != own.schema:
        words = f"--schema {shlex.quote(known.schema)}"
    else:
        return
    raise UsageError(f"the recorded command runs code of its own: to allow it, add `-- {words}`")


def _without_storage(words: Sequence[str]) -> Iterator[str]:
    """Yield the words without storage options: credentials go to no endpoint of a manifest."""
    rest = iter(words)
    for word in rest:
        if word == _STORAGE:
            next(rest, "")
        elif not word.startswith(f"{_STORAGE}="):
            yield word
