"""The build that made a dataset, from the command that its manifest records.

Without its code and storage options: the dataset may be of a stranger.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardwright.errors import UsageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.pipelines.job.build import BuildJob, describe_job
from shardwright.pipelines.options.arguments import make_parser
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.options.parser import parse_words, read_options
from shardwright.pipelines.options.python import INPUT as PYTHON_RECORDS
from shardwright.storage.addresses import HIDDEN
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.spool import forget_lost_spools

_STORAGE = "--storage-option"


@dataclass(frozen=True, slots=True)
class GivenBuild:
    """The parts of a build that the user gives, because the manifest does not have them.

    Attributes:
        input: INPUT if it has moved, else None.
        storage: Values of `--storage-option`, such as credentials.
        words: Further options of `build`.
    """

    input: str | None = None
    storage: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def recorded_job(manifest: Manifest, root: Folder, given: GivenBuild) -> BuildJob:
    """Return the job that built a dataset, in this process whatever runner the build had.

    Raises:
        UsageError: INPUT is not there, the settings are not those of the dataset, or Python wrote
            it.
        BuildError: A table cannot be read.
    """
    if manifest.provenance.get("input") == PYTHON_RECORDS and given.input is None:
        raise UsageError("a Python program wrote this dataset, so there is no INPUT to read again")
    options = _options_of(manifest, root, given)
    _check_settings(options, manifest)
    forget_lost_spools(options.root, finished_may_stay=False)  # images are needed again
    return describe_job(options, options.root.below(naming.SPOOL_DIR))


def _options_of(manifest: Manifest, root: Folder, given: GivenBuild) -> BuildOptions:
    command = manifest.provenance.get("command")
    # Without `shardwright build`.
    recorded = shlex.split(command)[2:] if command else [_input_of(manifest), root.uri]
    storage = [word for value in given.storage for word in (_STORAGE, value)]
    own = _parse([_input_of(manifest), root.uri, *given.words])
    # The user's words come last, so they win over the recorded ones.
    known = _parse([*_without_storage(recorded), *given.words, *storage])
    known.input = given.input or known.input
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
    return read_options(BuildOptions, known)


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


def _input_of(manifest: Manifest) -> str:
    return str(manifest.provenance.get("input") or "")


def _without_storage(words: Sequence[str]) -> Iterator[str]:
    """Yield the words without storage options: credentials go to no endpoint of a manifest."""
    rest = iter(words)
    for word in rest:
        if word == _STORAGE:
            next(rest, "")
        elif not word.startswith(f"{_STORAGE}="):
            yield word


def _check_settings(options: BuildOptions, manifest: Manifest) -> None:
    """Raise UsageError if the options would give other bytes than those of the dataset."""
    there, here = manifest.settings, options.settings
    differing = [key for key in sorted({*there, *here}) if there.get(key) != here.get(key)]
    if differing:
        details = "; ".join(
            f"{key} was {there.get(key)!r} and is {here.get(key)!r}" for key in differing
        )
        raise UsageError(
            f"the options are not those of the build ({details}): give the options of its command "
            "after --, such as `shardwright repair DATASET -- --seed 7`"
        )
