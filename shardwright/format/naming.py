"""Format and parse the names of a dataset's files; no other module does.

Shards are named as in TFDS (`tensorflow_datasets/core/naming.py`), so that
`tfds.builder_from_directory` finds them: `NAME-SPLIT.tfrecord-00003-of-00012`. A name depends on
the plan only, not on the run: a retry overwrites the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from shardwright.storage.addresses import TEMPORARY_SUFFIX, is_temporary, temporary_name
from shardwright.storage.folder import Folder

MANIFEST = "manifest.json"
PLAN = "plan.json"
FEATURES = "features.json"
DATASET_INFO = "dataset_info.json"
SCHEMA_PBTXT = "schema.pbtxt"
STATS = "stats.json"
REPORT = "report.html"
NEAR_DUPLICATES = "near_duplicates.parquet"
INDEX_DIR = "index"
REJECTS_DIR = "rejects"
SIGNALS_DIR = "signals"
SHARD_DIRS = (INDEX_DIR, REJECTS_DIR, SIGNALS_DIR)  # a file per shard
SPOOL_DIR = "spool"  # copies of bytes that cannot be read in place (`transforms/inputs/spool.py`)
VERSIONS_DIR = "versions"  # a manifest per version of a dataset that has grown
PINS_DIR = f"{VERSIONS_DIR}/pins"  # a file per version that `gc` must keep
GENERATIONS_DIR = "generations"  # what each append or compaction has built
NEXT_DIR = "next"  # a build that will replace the dataset, until it has (`transforms/promotion.py`)
STAGED_DIR = "staged"  # files that a repair has made, until they are in place
# Earlier releases put some of these files into folders of their own.
STAGED_DIRS = (STAGED_DIR, f"{STAGED_DIR}/fresh", f"{STAGED_DIR}/mended")
PLAN_REJECTS = f"{REJECTS_DIR}/plan.parquet"
FAILED_REJECTS = f"{REJECTS_DIR}/failed.parquet"
GONE_REJECTS = f"{REJECTS_DIR}/failed.gone.parquet"  # records that an append must not take away
HASHES_SUFFIX = ".hashes"  # in the spool: perceptual hashes (`transforms/near_duplicates`)
KNOWN_SUFFIX = ".known"  # in the spool: the records of a dataset that grows (`transforms/changes`)
LABELS_SUFFIX = ".labels.txt"
VOCABULARY_SUFFIX = ".vocab.txt"
SPOOL_SUFFIXES = (".parquet", ".bin", HASHES_SUFFIX, KNOWN_SUFFIX, TEMPORARY_SUFFIX)

MAX_VERSION = 10**9 - 1  # names of strangers with more digits would take memory and time

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_VERSION = re.compile(r"(\d{5,9})\.json")
_PIN = re.compile(r"[A-Za-z0-9_-]{1,100}")
_GENERATION = re.compile(rf"{GENERATIONS_DIR}/\d{{5,18}}-[a-z0-9]{{1,32}}")
_SPLIT = re.compile(r"[A-Za-z0-9_]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHARD = re.compile(
    r"(?P<name>[a-z][a-z0-9_]*)-(?P<split>\w+)\.tfrecord-(?P<index>\d{5,18})-of-(?P<count>\d{5,18})"
)


@dataclass(frozen=True, slots=True, order=True)
class ShardName:
    """The name of one shard of a split: number `index`, from 0, of `count`.

    Its paths are below the dataset's folder, in `folder` if the dataset has several generations.
    """

    name: str
    split: str
    index: int
    count: int
    folder: str = ""

    @property
    def shard(self) -> str:
        return self._path(f"{self.name}-{self.split}.tfrecord-{self._position}")

    @property
    def sidecar(self) -> str:
        return self._path(f"{INDEX_DIR}/{self.split}-{self._position}.parquet")

    @property
    def rejects(self) -> str:
        return self._path(f"{REJECTS_DIR}/{self.split}-{self._position}.parquet")

    @property
    def signals(self) -> str:
        return self._path(f"{SIGNALS_DIR}/{self.split}-{self._position}.parquet")

    @property
    def attempt(self) -> str:
        """The note of a process that is writing the shard, a temporary file."""
        note = temporary_name(f"{self.split}-{self._position}", "attempt")
        return self._path(f"{INDEX_DIR}/{note}")

    def _path(self, path: str) -> str:
        return f"{self.folder}/{path}" if self.folder else path

    @property
    def _position(self) -> str:
        return f"{self.index:05d}-of-{self.count:05d}"

    @classmethod
    def parse(cls, filename: str) -> ShardName | None:
        """Parse a shard's file name; return None for any other name."""
        match = _SHARD.fullmatch(filename)
        if not match:
            return None
        found = cls(match["name"], match["split"], int(match["index"]), int(match["count"]))
        return found if found.shard == filename and found.index < found.count else None


def notice_file(name: str, split: str) -> str:
    """Return the file that globs over the shards of a split find first, but no reader or build.

    There is no shard 0 of 0 (`shardwright.format.superseded`).
    """
    return f"{name}-{split}.tfrecord-00000-of-00000"


def version_file(number: int) -> str:
    """Return the path of a version's manifest."""
    return f"{VERSIONS_DIR}/{number:05d}.json"


def version_number(filename: str) -> int | None:
    """Return the number of a version from its file name in `VERSIONS_DIR`; None for other names."""
    match = _VERSION.fullmatch(filename)
    number = int(match[1]) if match else 0
    return number if number > 1 and version_file(number).endswith(f"/{filename}") else None


def generation_folder(number: int, token: str) -> str:
    """Return the folder of the generation that version `number` adds.

    Args:
        number: The version.
        token: Lower-case letters and digits by which those of two builds differ.
    """
    return f"{GENERATIONS_DIR}/{number:05d}-{token}"


def is_generation_folder(folder: str) -> bool:
    """Return whether a folder is one that `generation_folder` makes."""
    return _GENERATION.fullmatch(folder) is not None


def is_pin_name(name: str) -> bool:
    """Return whether a pin may have this name: letters, digits, - and _, at most 100."""
    return _PIN.fullmatch(name) is not None


def pin_file(name: str) -> str:
    """Return the path of a pin."""
    return f"{PINS_DIR}/{name}.json"


def is_dataset_name(name: str) -> bool:
    """Return whether TFDS accepts `name`: lower-case letters, digits and underscores."""
    return _NAME.fullmatch(name) is not None


def is_split_name(split: str) -> bool:
    """Return whether `split` is valid in a shard's file name: letters, digits and underscores."""
    return _SPLIT.fullmatch(split) is not None


def dataset_name_for(output: str) -> str:
    """Return a valid dataset name for OUTPUT, such as `my_flowers` for `/data/My Flowers`."""
    last = output.rstrip("/").rsplit("/", 1)[-1].lower()
    cleaned = re.sub(r"[^a-z0-9]+", "_", last).strip("_")
    return cleaned if is_dataset_name(cleaned) else f"dataset_{cleaned}".rstrip("_")


def labels_file(feature: str) -> str:
    """Return the file in which TFDS looks for a feature's class names; `/` becomes `-`."""
    return f"{feature.replace('/', '-')}{LABELS_SUFFIX}"


def vocabulary_file(feature: str) -> str:
    """Return the file of the words of a feature of tokens or of a bag of words; `/` becomes `-`."""
    return f"{feature.replace('/', '-')}{VOCABULARY_SUFFIX}"


def reject_files(first: str, count: int) -> tuple[str, ...]:
    """Return the names of `count` files of rejects: `first` if it is one, else numbered ones.

    Args:
        first: `PLAN_REJECTS` or `FAILED_REJECTS`.
        count: Number of files.
    """
    if count <= 1:
        return (first,)[:count]
    stem = first.removesuffix(".parquet")  # no split has a dot, so no shard has such a file
    return tuple(f"{stem}.{index:05d}-of-{count:05d}.parquet" for index in range(count))


def is_failed_rejects(path: str) -> bool:
    """Return whether a path is that of rejects of a build that failed before it wrote shards."""
    return path.startswith(FAILED_REJECTS.removesuffix("parquet"))


def is_build_output(path: str) -> bool:
    """Return whether builds make this path, relative to a dataset: a rebuild may remove it."""
    folder, slash, filename = path.rpartition("/")
    if folder in SHARD_DIRS:
        return filename.endswith((".parquet", TEMPORARY_SUFFIX))
    if folder == SPOOL_DIR:
        return filename.endswith(SPOOL_SUFFIXES)
    if slash:
        return False
    known = {MANIFEST, PLAN, FEATURES, DATASET_INFO, SCHEMA_PBTXT, STATS, REPORT, NEAR_DUPLICATES}
    known.add("stats.pb")  # of earlier releases
    if filename in known or filename.endswith((LABELS_SUFFIX, VOCABULARY_SUFFIX)):
        return True
    return ShardName.parse(filename) is not None or is_temporary(filename)


def build_outputs(root: Folder, folders: Iterable[str] = ("", *SHARD_DIRS)) -> list[str]:
    """Return the sorted names of the files that builds make in some folders, listed in order.

    Args:
        root: The dataset's folder.
        folders: "" and folders below it; by default all but the spool.
    """
    paths = [
        f"{below}/{name}" if below else name for below in folders for name in root.names(below)
    ]
    return sorted(filter(is_build_output, paths))


def is_companion(path: str) -> bool:
    """Return whether a manifest may list this path: a build's file beside shards and sidecars."""
    return (
        is_build_output(path)
        and path != MANIFEST
        and not path.startswith((f"{INDEX_DIR}/", f"{SPOOL_DIR}/"))
        and ShardName.parse(path) is None
        and has_no_control_character(path)
    )


def has_no_control_character(name: str) -> bool:
    return _CONTROL.search(name) is None


def near_duplicates_part(number: int) -> str:
    """Return the temporary file of a part of the near-duplicates, whose splits are not known."""
    return temporary_name(NEAR_DUPLICATES, f"{number:05d}")
