"""Append to a dataset: build what is new or changed in INPUT, and commit the next version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import count

from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.format.notes import begin_build, giving_up
from shardwright.format.versions import number_of, read_version, version_numbers
from shardwright.pipelines.commands.additions import build_additions, prepare_append
from shardwright.pipelines.job.build import BuildJob, Detect, prepare_job
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.runners.beam_options import is_local
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.detection import detect_source
from shardwright.transforms.versions.additions import commit_additions


def prepare_version(options: BuildOptions, detect: Detect = detect_source) -> BuildJob:
    """Return the build of what a dataset lacks; that of the whole dataset if there is none yet.

    A note says that the folder of the additions is in use, until they are committed or have failed.
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
    folder, note = begin_build(root, _free_folders(root, base, options))
    with giving_up(root, note):
        job = prepare_append(options, base, folder, detect)
    assert job.known is not None, "a job of `prepare_append`"
    return replace(job, known=replace(job.known, note=note))


def _free_folders(root: Folder, base: Manifest, options: BuildOptions) -> Iterator[str]:
    """Yield folders for the additions: the same ones in every try, so that it can resume.

    A finished folder is left out. It is never written again, because another process may be about
    to commit it.
    """
    token = hashlib.blake2b(options.append_key.encode(), digest_size=4).hexdigest()
    for number in count():
        folder = naming.generation_folder(number_of(base) + 1, f"{token}x{number}")
        if root.num_bytes_of(f"{folder}/{naming.MANIFEST}") is None:
            yield folder


def append_version(job: BuildJob, *, here: bool = False) -> Manifest:
    """Build the additions of a job, commit them, and return the dataset's newest version.

    With `here`, this process builds any number of them, without Beam.

    It is the version that was there if nothing has changed, or if the job is only written to a
    template. A graph commits as its last step, so that this process need not live that long.

    Raises:
        ShardwrightError: As in any build; or another append has changed the classes meanwhile.
    """
    known, append = job.known, job.append
    assert known is not None, "a job of `prepare_append`"
    assert append is not None
    with giving_up_append(job):
        additions = build_additions(job, here=here)
        if additions is not None:
            return commit_additions(append, known.base, additions)
        # Late, because both take longer than a small build.
        from shardwright.pipelines.job.graph import build_graph
        from shardwright.pipelines.runners.run import run_pipeline

        run_pipeline(build_graph, job)
        return read_version(known.root)


def giving_up_append(job: BuildJob) -> AbstractContextManager[None]:
    """Return a block that removes the note of an append, if the job is one and fails in it.

    On other machines the job may go on, whatever becomes of this process.
    """
    known = job.known
    if known is None or not known.note or not is_local(job.options.beam_args):
        return nullcontext()
    return giving_up(known.root, known.note)
