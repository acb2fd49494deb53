"""Recognize WebDataset shards, and infer the layout of their samples from the first ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from shardwright.errors import MissingError, UsageError
from shardwright.transforms.inputs.archives.archive_look import (
    LEAST_LOOK,
    LOOK_BYTES,
    ArchiveFacts,
    ArchiveStart,
    find_archives,
    first_and_last,
    layout_of,
)
from shardwright.transforms.inputs.archives.archive_members import ArchiveFault, MemberPlace
from shardwright.transforms.inputs.archives.tar_members import TarReader, is_tar_name
from shardwright.transforms.inputs.archives.webdataset_layout import SampleLayout, learn_layout
from shardwright.transforms.inputs.archives.webdataset_samples import (
    Sample,
    is_webdataset,
    read_samples,
)
from shardwright.transforms.inputs.input_files import InputFile, base_of, describe_files, state_of
from shardwright.transforms.inputs.source import SourceRequest

_LOOK_SAMPLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDatasetFacts(ArchiveFacts):
    """The facts about WebDataset shards.

    Attributes:
        samples: The layout of the samples.
    """

    samples: SampleLayout


def look(request: SourceRequest) -> WebDatasetFacts | None:
    """Return the facts about WebDataset shards; None if INPUT is something else.

    Raises:
        UsageError: As for `find_archives` and `learn_layout`, or there are no samples.
    """
    archives = find_archives(request, is_tar_name, "tar archives")
    if not archives:
        return None
    starts = [list(_first_samples(archive, request)) for archive in first_and_last(archives)]
    if not request.forced and not is_webdataset(starts[0]):
        return None
    found = list(chain.from_iterable(starts))
    if not found:
        raise UsageError(
            f"{archives[0].uri} has no samples: "
            "expected members KEY.SUFFIX, such as 000017.jpg and 000017.cls"
        )
    layout = layout_of(request, list(map(_paths_of, starts)), archives)
    samples = learn_layout(found, request.columns, request.kinds)
    told = describe_files(request, archives, "WebDataset shard")
    return WebDatasetFacts(
        f"{told}{samples.describe()}{layout.describe()}",
        samples.schema,
        samples.features,
        states_splits=layout.states_splits or "split" in dict(samples.roles),
        labels_from=samples.label_source or layout.labels_from,
        has_integer_labels=samples.has_integer_labels,
        request=request,
        base=base_of(archives),
        layout=layout,
        is_archive=is_tar_name,
        samples=samples,
    )


def _paths_of(samples: Sequence[Sample]) -> ArchiveStart:
    paths = [f"{sample.key}.{suffix}" for sample in samples for suffix in sample.sizes]
    return ArchiveStart(paths, whole=False)


def _first_samples(archive: InputFile, request: SourceRequest) -> Iterator[Sample]:
    """Yield the first samples of a shard that can be read, without the places of images."""
    try:
        state = state_of(archive.uri, request.storage)
        members = TarReader(archive.uri, request.storage, state.num_bytes).members()
        num_bytes = 0
        found = read_samples(members, MemberPlace(archive.uri, 0, state.etag), None, places=False)
        for number, sample in enumerate(islice(found, _LOOK_SAMPLES)):
            if isinstance(sample, Sample):
                yield sample
                num_bytes += sum(sample.sizes.values())
            if number >= LEAST_LOOK and num_bytes > LOOK_BYTES:
                return
    except (ArchiveFault, MissingError):  # reported when the archive is listed
        return
