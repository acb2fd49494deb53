"""The command `shardwright erase`: remove records from every version of a dataset."""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.cache.manifests import forget_dataset
from shardwright.cache.settings import CacheSettings
from shardwright.errors import BuildError, UsageError
from shardwright.format.manifest import shard_of, time_text
from shardwright.format.versions import read_versions
from shardwright.inspect.cli import run_to_end
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    EXIT_FAULTS,
    make_parser,
    root_of,
    to_json,
)
from shardwright.pipelines.commands.results import run_on_dataset
from shardwright.sizes import counted, show_bytes
from shardwright.storage.addresses import local_path
from shardwright.storage.folder import Folder, UserFolder
from shardwright.terminal import join_lines, print_safely, say
from shardwright.transforms.change_set import read_change
from shardwright.transforms.erasure.check import check_erased
from shardwright.transforms.erasure.erase import Findings, check_some_stay, erase, look_through
from shardwright.transforms.erasure.leftovers import why_left
from shardwright.transforms.erasure.old_objects import remove_old_objects
from shardwright.transforms.erasure.receipt import Receipt, read_receipt, write_receipt
from shardwright.transforms.erasure.traces import finished_generations
from shardwright.transforms.erasure.wanted_ids import WantedIds, hash_of, parse_ids

_SHOWN = 20  # lines of a kind
_EPILOG = """\
examples
  shardwright erase dataset/ --ids withdrawn.txt                      # shows what would change
  shardwright erase dataset/ --ids withdrawn.txt --receipt erased.json --yes
  shardwright erase dataset/ --verify erased.json

Removes the records with these ids, one on each line of FILE, from every version and generation: the
shards that hold them are rewritten by copying the other records. A FILE that ends in .json is a
JSON list of ids, also of those with line breaks. Their rows in indexes, signals, rejects,
near-duplicates and reports go, too, and so do spools, staged files and unfinished builds, uploads
and old object versions below DATASET, and what caches hold of it. A class name or a word that no
other record has becomes a placeholder of the same number, such as <erased 17>, in every version. A
stopped run goes on when its command is repeated. Stop appends, compact, gc and repair before: a
build that runs meanwhile fails, and has to be run again.

INPUT is not touched. Remove the images from it before the next append, which adds them otherwise.

The receipt holds no id, but salted hashes of them, and each file's length and checksum before and
after. It names what could not be removed or looked at.

An id of INPUT also erases the records that --transform has made of it, such as "a.jpg#left" for
"a.jpg". Ids that are not found are named.

Exit codes: 0 done, or --verify finds nothing left; 1 failed, an id was not found (the others are
erased), something could not be removed, or --verify finds something; 2 wrong usage or not a
dataset.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `shardwright erase` and return its exit code."""
    parser = _parser()
    args = parser.parse_args(sys.argv[1:] if argv is None else argv)
    if args.verify is None and args.ids is None:
        parser.error("--ids FILE is needed, the ids of the records, one on each line")
    if args.yes and args.verify is None and args.receipt is None:
        parser.error("--yes needs --receipt FILE, a new file for the receipt")
    run = _verify if args.verify is not None else _erase if args.yes else _show
    return run_on_dataset(lambda: run(args))


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "erase", "Remove records from every version of a dataset, with a receipt.", _EPILOG
    )
    parser.add_argument(
        "--ids",
        metavar="FILE",
        help="the ids of the records, one on each line; of a .json file, a JSON list",
    )
    parser.add_argument(
        "--receipt", metavar="FILE", help="write the receipt there; needed by --yes"
    )
    parser.add_argument(
        "--cache",
        metavar="DIR",
        action="append",
        default=[],
        help="a folder that readers use as their cache, beside the default one; may be repeated",
    )
    parser.add_argument(
        "--allow-missing", action="store_true", help="exit with 0 if some ids are not found, too"
    )
    parser.add_argument(
        "--keep-names",
        action="store_true",
        help="keep the class names and words that only erased records had; the receipt says so",
    )
    parser.add_argument("--yes", action="store_true", help="erase, instead of only showing what")
    parser.add_argument(
        "--verify", metavar="RECEIPT", help="check that nothing of an earlier erasure is left"
    )
    return parser


@dataclass(frozen=True, slots=True)
class _Place:
    """A local file: its folder and its name."""

    folder: Folder
    name: str

    @classmethod
    def of(cls, path: str) -> _Place:
        folder, name = os.path.split(local_path(path))
        return cls(UserFolder.at(folder), name)


def _ids_in(path: str) -> frozenset[str]:
    place = _Place.of(path)
    return parse_ids(place.folder.read_bytes(place.name), path)


def _show(args: argparse.Namespace) -> int:
    """Show what would be erased."""
    root, ids = root_of(args), _ids_in(args.ids)
    for folder in finished_generations(root):
        if read_change(root.below(folder)) is not None:
            raise BuildError(
                f"a change of {root.below(folder)} was stopped: --yes, or repair, finishes it"
            )
    look = look_through(root, WantedIds(ids))
    check_some_stay(root, look)
    found = _found(look)
    made = {each: sorted(names - {each}) for each, names in found.items() if names - {each}}
    missing = sorted(ids - found.keys())
    counts = {"erased": False, "asked": len(ids), "found": len(found)}
    content = {**counts, "missing": missing, "made": made, **_shown(look)}
    if args.json:
        print_safely(to_json(content))
    else:
        lines = [
            f"would erase {len(found):,} of {counted(len(ids), 'id')} (add --yes): rewrites "
            f"{counted(content['num_shards'], 'shard')}, {show_bytes(content['num_bytes'])}",
            *(f"  {path}" for path in content["paths"]),
            *(f"  {path}: removed, {why_left(path)}" for path in look.leftovers),
            *_made_lines({each: len(names) for each, names in made.items()}),
        ]
        print_safely(join_lines(lines))
    return _end(missing, args)


def _found(look: Findings) -> dict[str, set[str]]:
    """Return the ids that go for each of the user's."""
    found: dict[str, set[str]] = defaultdict(set)
    for ids in (ids for traces in look.traces for ids in traces.ids.values()):
        for name, asked in ids.items():
            for each in asked:
                found[each].add(name)
    return found


def _made_lines(made: Mapping[str, int]) -> list[str]:
    return _first(
        f"{name}: erases {counted(number, 'record')} that --transform made of it"
        for name, number in sorted(made.items())
    )


def _end(missing: Sequence[str], args: argparse.Namespace) -> int:
    """Print the ids that were not found, and return the exit code."""
    for line in _first(f"not found: {name}" for name in missing):
        say(line)
    return EXIT_FAULTS if missing and not args.allow_missing else EXIT_DONE


def _first(lines: Iterable[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    shown = list(lines)
    more = len(shown) - _SHOWN
    return [*shown[:_SHOWN], f"and {more:,} more"] if more > 0 else shown


def _shown(look: Findings) -> dict[str, Any]:
    shards = [
        shard_of(traces.manifest, name)
        for traces in look.traces
        for name, rows in traces.rows.items()
        if len(rows)  # none if only the shard's rejects name an id
    ]
    return {
        "num_shards": len(shards),
        "num_bytes": sum(info.num_bytes for info in shards),
        "paths": sorted(path for traces in look.traces for path in traces.ids),
        "leftovers": list(look.leftovers),
    }


def _erase(args: argparse.Namespace) -> int:
    root, ids, place = root_of(args), _ids_in(args.ids), _Place.of(args.receipt)
    receipt, keeps_names = read_receipt(place.folder, place.name), args.keep_names
    if receipt is None:
        receipt = Receipt.begin(root.uri, ids, keeps_names=keeps_names)
    elif receipt.ended is not None or not receipt.is_of(root.uri, ids, keeps_names=keeps_names):
        raise UsageError(f"--receipt {args.receipt} is the receipt of another run: give a new file")

    def save() -> None:
        write_receipt(place.folder, place.name, receipt)

    erase(root, WantedIds(ids), receipt, save)
    remove_old_objects(root, receipt)
    fingerprints = {version.fingerprint for version in read_versions(root)}
    fingerprints |= {found.fingerprint for found in finished_generations(root).values()}
    for cache in dict.fromkeys([CacheSettings.of().folder, *map(local_path, args.cache)]):
        forgotten = forget_dataset(cache, root, fingerprints)
        if forgotten.num_files:
            receipt.caches[cache] = forgotten._asdict()
    receipt.ended = time_text()
    save()
    if args.json:
        print_safely(to_json(receipt.to_json()))
    else:
        made = {name: len(receipt.made.get(hash_of(receipt.salt, name), ())) for name in ids}
        some = _made_lines({name: number for name, number in made.items() if number})
        print_safely(join_lines([*_told(receipt, args.receipt), *some]))
    code = _end(receipt.missing(ids), args)
    return EXIT_FAULTS if receipt.not_removed else code


def _told(receipt: Receipt, path: str) -> list[str]:
    touched, rewritten = receipt.shard_bytes()
    asked = counted(len(receipt.hashes), "id")
    lines = [
        f"erased {receipt.num_found:,} of {asked}: shards of {show_bytes(touched)} rewritten as "
        f"{show_bytes(rewritten)}; the receipt is {path}"
    ]
    if not receipt.num_found:
        lines[0] = f"none of {asked} was found; the receipt is {path}"
    lines += [f"not removed: {each['what']}: {each['why']}" for each in receipt.not_removed]
    lines += [f"not checked: {each['what']}: {each['why']}" for each in receipt.not_checked]
    return [*lines, "remove the images from INPUT before the next append"]


def _verify(args: argparse.Namespace) -> int:
    """Check that nothing of a receipt is left."""
    root, place = root_of(args), _Place.of(args.verify)
    receipt = read_receipt(place.folder, place.name)
    if receipt is None:
        raise UsageError(f"--verify {args.verify}: there is no such file")
    left, not_checked, not_searched = check_erased(root, receipt)
    if not_searched:
        say(
            f"not searched in bytes: {counted(not_searched, 'id')}, too short, a word or a number, "
            "or of a receipt of an earlier release"
        )
    for path in not_checked:
        say(f"not checked: {path} is {why_left(path)}")
    if receipt.dataset != root.uri:
        say(f"the receipt is of {receipt.dataset}")
    if args.ids is not None:
        ids = _ids_in(args.ids)
        missing = sum(hash_of(receipt.salt, each) not in receipt.hashes for each in ids)
        if missing:
            left.append(f"{counted(missing, 'id')} of --ids {args.ids} are not in the receipt")
    if args.json:
        print_safely(to_json({"erased": not left, "left": left, "not_checked": not_checked}))
    else:
        asked = counted(len(receipt.hashes), "id")
        print_safely(join_lines(left) if left else f"nothing of {asked} is left in {root}")
    return EXIT_FAULTS if left else EXIT_DONE


if __name__ == "__main__":
    sys.exit(run_to_end(main))
