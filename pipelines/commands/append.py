"""Append to a dataset: build what is new or changed in INPUT, and commit the next version.

The additions are a dataset of their own, in a folder below OUTPUT, with the same features, class
numbers and options. Nothing of the dataset in OUTPUT is changed: a version that names both is
committed after this build, or by its last step.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace

from shardwright.errors import BuildError, UsageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.notes import free_generation
from shardwright.format.versions import number_of, read_version, version_numbers
from shardwright.pipelines.job.build import BuildJob, Detect, prepare_job
from shardwright.pipelines.job.schema import read_option_classes
from shardwright.pipelines.local.build import LocalShards, build_here
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.runners.beam_options import is_local
from shardwright.sizes import counted
from shardwright.transforms.changes.known_files import write_known
from shardwright.transforms.changes.known_records import KnownRecords, read_known
from shardwright.transforms.changes.schema_differences import known_vocabularies, schema_differences
from shardwright.transforms.features.rows import FeatureHashes
from shardwright.transforms.inputs.detection import detect_source
from shardwright.transforms.inputs.formats.tables import TableSource
from shardwright.transforms.output_state import differences
from shardwright.transforms.publish.fail_on import NEAR
from shardwright.transforms.reject_limits import check_rejects
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.versions.additions import (
    Additions,
    Append,
    KnownDataset,
    check_gone,
    commit_additions,
)

_LOG = logging.getLogger("shardwright.append")
# More records are written by Beam, whose import and start take as long as a few thousand images.
MOST_HERE = 10_000


def prepare_append(
    options: BuildOptions, manifest: Manifest, folder: str, detect: Detect = detect_source
) -> BuildJob:
    """Check INPUT and the options against a dataset, and write its known records for the workers.

    Args:
        options: Options of the build; OUTPUT is the dataset's folder.
        manifest: The version of the dataset that the build adds to.
        folder: The folder below OUTPUT for the additions, such as `generations/00001`. What an
            unfinished or uncommitted build has left there is resumed or replaced.
        detect: Finds the format of INPUT.

    Returns:
        The build of the additions, whose `known` has the dataset's records.

    Raises:
        UsageError: INPUT or an option is invalid, or does not fit a dataset that grows.
        BuildError: The options or features differ from those of the dataset.
        StorageError: The index of the dataset cannot be read.
    """
    _check_options(options)
    added = replace(
        options, output=options.root.path(folder), name=manifest.name, if_exists="resume"
    )
    there = f"OUTPUT {options.root} holds a dataset with other"
    if details := differences(manifest.settings, added.settings):
        raise BuildError(
            f"{there} settings ({details}): add to it with the same options, or build into "
            "another OUTPUT"
        )
    job = prepare_job(added, detect)
    if details := schema_differences(manifest.schema, job.schema):
        raise BuildError(
            f"{there} features ({details}): bring INPUT or --schema in line with it, or build "
            "into another OUTPUT"
        )
    vocabularies = known_vocabularies(manifest.schema, job.schema)
    _check_class_names(options, manifest.schema.class_names)
    source = job.source
    copies = source.copied_schema is not None
    # Else ids are made of paths.
    states_ids = isinstance(source, TableSource) and source.layout.id is not None
    keeps_places = options.keep_missing and not copies and not states_ids
    records = read_known(options.root, manifest, by_content=copies, keeps_places=keeps_places)
    _warn_of_not_compared(job.feature_hashes, records)
    append = Append(
        options.root,
        number_of(manifest),
        manifest.fingerprint,
        folder,
        options.keep_missing,
        keeps_places,
        num_records=manifest.num_records,
        max_gone=options.max_gone,
        source=options.input,
    )
    file = write_known(job.spool, records)
    return replace(job, known=KnownDataset(file, vocabularies, manifest, append))


def _check_options(options: BuildOptions) -> None:
    if options.writer == "beam":
        raise UsageError("--if-exists append needs --writer planned: Beam's has no plan to compare")
    needs_all = options.stratify or (options.split is not None and options.split.is_exact)
    if options.group_column is not None and needs_all:
        raise UsageError(
            "--if-exists append cannot keep groups in one split with --stratify or exact numbers, "
            "because the dataset does not store groups: use fractions without --stratify"
        )
    if options.keep_missing and any(limit.name == NEAR for limit in options.fail_on or ()):
        raise UsageError(
            f"--fail-on {NEAR} cannot be judged with --keep-missing, because images of the dataset "
            "that INPUT lacks are not compared: append all of INPUT, or leave it out"
        )


def _warn_of_not_compared(hashes: FeatureHashes, records: KnownRecords) -> None:
    """Warn of features whose changes are not found, because the index has no hash of them."""
    if hashes.names and records.num_unhashed:
        _LOG.warning(
            "changes of %s are not noticed yet for unchanged images of %s, which an older version "
            "of shardwright wrote: their index has no hashes of features",
            ", ".join(map(repr, hashes.names)),
            counted(records.num_unhashed, "record"),
        )


def _check_class_names(options: BuildOptions, known: tuple[str, ...]) -> None:
    """Check that a user's list, whose order counts, begins with the names of the dataset."""
    given = read_option_classes(options)
    if given is None or given[: len(known)] == known:
        return
    number = next(
        number for number, name in enumerate(known) if given[number : number + 1] != (name,)
    )
    raise BuildError(
        f"--class-names {options.class_names}: class {number} is {known[number]!r} in the dataset, "
        f"but {given[number] if number < len(given) else 'missing'!r} here: keep its names first, "
        "in their order, and add new ones after them"
    )


def build_additions(job: BuildJob, *, here: bool = False) -> Additions | None:
    """Build the additions of a job of `prepare_append` in this process.

    Returns:
        The outcome. None if a runner must build them: its workers are on other machines, or the
            additions are so many that its start pays off, unless they must be built `here`.

    Raises:
        ShardwrightError: As in any build.
    """
    if not is_local(job.options.beam_args):
        return None
    shards, known = LocalShards(job, with_plans=True), job.known
    assert shards.seen is not None
    assert known is not None, "a job of `prepare_append`"
    if shards.layout.num_records == 0:  # after the checks that a build makes
        tally = shards.rejects.tally
        is_partial = RejectReason.INCOMPLETE in tally.reasons
        try:
            tally.check_complete(shards.vocabularies)
            unchanged = shards.seen.num_unchanged
            check_rejects(tally.reasons, unchanged, job.options.limits, grows=True)
            check_gone(known.append, shards.seen, is_partial)
        except BuildError:
            shards.clear([])  # raises it, too, once the rejects are listed in files
            raise
        empty = replace(known.base, splits={}, rejects=dict(tally.reasons))
        job.publication.check(job.options.root, empty, shards.seen)
        return Additions(None, shards.seen, is_partial)
    if shards.layout.num_records > MOST_HERE and not here:
        return None
    build_here(job, shards)
    return Additions.of(read_manifest(job.options.root), shards.seen)


def prepare_version(options: BuildOptions, detect: Detect = detect_source) -> BuildJob:
    """Return the build of what a dataset lacks; that of the whole dataset if there is none yet.

    `detect` finds the format of INPUT.

    Raises:
        UsageError: INPUT or an option is invalid, or does not fit a dataset that grows.
        BuildError: The options or features differ from those of the dataset.
        StorageError: The dataset or INPUT cannot be read.
    """
    root = options.root
    if version_numbers(root)[-1] == 1 and root.num_bytes_of(naming.MANIFEST) is None:
        return prepare_job(replace(options, if_exists="resume"), detect)
    base = read_version(root)
    # A finished folder is never written again, because another process may be about to commit it.
    token = f"{hashlib.blake2b(options.append_key.encode(), digest_size=4).hexdigest()}x0"
    folder = free_generation(root, number_of(base) + 1, token, may_be_finished=False)
    return prepare_append(options, base, folder, detect)


def append_version(job: BuildJob, *, here: bool = False) -> Manifest:
    """Build the additions of a job, commit them, and return the dataset's newest version.

    With `here`, this process builds any number of them, without Beam.

    It is the version that was there if nothing has changed, or if the job is only written to a
    template. A graph commits as its last step, so that this process need not live that long.

    Raises:
        ShardwrightError: As in any build; or another append has changed the classes meanwhile.
    """
    known = job.known
    assert known is not None, "a job of `prepare_append`"
    additions = build_additions(job, here=here)
    if additions is not None:
        return commit_additions(known.append, known.base, additions)
    # Late, because both take longer than a small build.
    from shardwright.pipelines.job.graph import build_graph
    from shardwright.pipelines.runners.run import run_pipeline

    run_pipeline(build_graph, job)
    return read_version(known.append.root)
