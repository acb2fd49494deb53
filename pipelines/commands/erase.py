"""The command `shardwright erase`: copy a dataset without some records, and remove all else."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msgspec import to_builtins

from shardwright.cache.manifests import forget_dataset
from shardwright.cache.settings import CacheSettings
from shardwright.errors import BuildError, UsageError
from shardwright.format.manifest import Manifest, read_manifest, time_text
from shardwright.format.notes import END_COMMIT, Note, is_noted, noted
from shardwright.format.pins import pin_names
from shardwright.format.versions import later_numbers, number_of, read_version, read_versions
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    EXIT_FAULTS,
    make_parser,
    root_of,
    to_json,
)
from shardwright.pipelines.commands.compact import (
    build_copy,
    commit_copy,
    folder_for,
    store_words,
)
from shardwright.pipelines.commands.results import run_command
from shardwright.sizes import counted, show_bytes
from shardwright.storage.addresses import local_path
from shardwright.storage.folder import Folder
from shardwright.terminal import join_lines, print_safely, say
from shardwright.transforms.erasure.findings import Found, find, finished_generations
from shardwright.transforms.erasure.receipt import (
    Receipt,
    find_left,
    parse_ids,
    read_receipt,
    write_receipt,
)
from shardwright.transforms.erasure.remains import remove_old_objects, remove_remains
from shardwright.transforms.promotion import finish_promotion, promote
from shardwright.transforms.versions.commit import Operation

_SHOWN = 20  # ids
_EPILOG = """\
examples
  shardwright erase dataset/ --ids withdrawn.txt                      # shows what would change
  shardwright erase dataset/ --ids withdrawn.txt --receipt erased.json --yes
  shardwright erase dataset/ --verify erased.json

Copies the newest version without the records with these ids, one on each line of FILE, and removes
all else: earlier versions and their pins, rejects, lists of near-duplicates, pages, spools, staged
files, unfinished builds, old object versions below DATASET, and what caches hold of it. A FILE that
ends in .json is a JSON list of ids, also of those with line breaks. A class name or a word that no
other record has becomes a placeholder of the same number, such as <erased 17>.

The copy takes as much room as `shardwright compact`, and longer, so collect ids and erase them
together, such as once a month. A dataset that has grown gets a next version; another one is
replaced. A stopped run goes on when its command is repeated. Stop appends, compact, gc and repair
before: a build that runs meanwhile fails, and has to be run again.

INPUT is not touched. Remove the images from it before the next append, which adds them otherwise.

The receipt holds no id, but salted hashes of them. It names what could not be removed or looked at.

An id of INPUT also erases the records that --transform has made of it, such as "a.jpg#left" for
"a.jpg". Ids that are not found are named.

Exit codes: 0 done, or --verify finds nothing left; 1 failed, an id was not found (the others are
erased), something could not be removed, or --verify finds something; 2 wrong usage or not a
dataset.
"""


def main(argv: Sequence[str]) -> int:
    """Run `shardwright erase` and return its exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if (args.verify is None) == (args.ids is None):
        parser.error("give --ids FILE, the ids of the records, one on each line, or --verify")
    if args.yes and args.verify is None and args.receipt is None:
        parser.error("--yes needs --receipt FILE, a new file for the receipt")
    run = _verify if args.verify is not None else _erase if args.yes else _show
    return run_command(lambda: run(args))


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


def _place(path: str) -> tuple[Folder, str]:
    """Return the folder and the name of a local file."""
    folder, name = os.path.split(local_path(path))
    return Folder(folder, top=None), name


def _ids_in(path: str) -> frozenset[str]:
    folder, name = _place(path)
    return parse_ids(folder.read_bytes(name), path)


def _show(args: argparse.Namespace) -> int:
    """Show what would be erased."""
    root, ids = root_of(args), _ids_in(args.ids)
    newest = read_version(root)
    found = find(root, newest, ids, keep_names=args.keep_names)
    effects, missing = _effects(root, newest, found, len(ids)), sorted(ids - found.ids)
    if args.json:
        print_safely(to_json({"erased": False, **effects, "missing": missing}))
    else:
        print_safely(f"{_told(effects, root)}; add --yes to erase")
    return _end(missing, args)


def _effects(root: Folder, newest: Manifest, found: Found, asked: int) -> dict[str, Any]:
    """Return what an erasure takes and ends, as JSON."""
    return {
        "asked": asked,
        "found": len(found.ids),
        "num_records": found.num_records,
        "copied_records": newest.num_records - found.num_records if found.must_copy else 0,
        "copied_bytes": newest.num_bytes if found.must_copy else 0,
        "versions": sorted(map(number_of, read_versions(root)))[:-1],
        "pins": pin_names(root) if newest.history else [],
    }


def _told(effects: dict[str, Any], root: Folder) -> str:
    asked = counted(effects["asked"], "id")
    if not effects["found"]:
        return f"{root}: none of {asked} was found; what stopped builds have left is removed"
    versions = ", ".join(map(str, effects["versions"])) or "none"
    return (
        f"{root}: erases {counted(effects['num_records'], 'record')} of {effects['found']:,} of "
        f"{asked}, and copies {counted(effects['copied_records'], 'record')}, about "
        f"{show_bytes(effects['copied_bytes'])}. Earlier versions end ({versions}), "
        f"with {counted(len(effects['pins']), 'pin')} and the lists of rejects and near-duplicates"
    )


def _end(missing: Sequence[str], args: argparse.Namespace) -> int:
    """Print the ids that were not found, and return the exit code."""
    for name in missing[:_SHOWN]:
        say(f"not found: {name}")
    if len(missing) > _SHOWN:
        say(f"and {len(missing) - _SHOWN:,} more")
    return EXIT_FAULTS if missing and not args.allow_missing else EXIT_DONE


def _erase(args: argparse.Namespace) -> int:
    root, ids, place = root_of(args), _ids_in(args.ids), _place(args.receipt)
    receipt, keeps_names = read_receipt(*place), args.keep_names
    if receipt is None:
        receipt = Receipt.begin(root.uri, ids, keeps_names=keeps_names)
    elif not receipt.is_of(root.uri, ids, keeps_names=keeps_names):
        raise UsageError(f"--receipt {args.receipt} is the receipt of another run: give a new file")

    def save() -> None:
        write_receipt(*place, receipt)

    if code := erase(root, ids, receipt, save, stores=args.storage_option, caches=args.cache):
        return code
    if args.json:
        print_safely(to_json(to_builtins(receipt)))
    else:
        asked = counted(len(receipt.ids), "id")
        lines = [
            f"erased {len(receipt.found):,} of {asked}, {counted(receipt.num_records, 'record')}; "
            f"the receipt is {args.receipt}",
            *(f"not removed: {each}" for each in receipt.not_removed),
            "remove the images from INPUT before the next append",
        ]
        print_safely(join_lines(lines))
    code = _end(receipt.missing(ids), args)
    return EXIT_FAULTS if receipt.not_removed else code


def erase(
    root: Folder,
    ids: frozenset[str],
    receipt: Receipt,
    save: Callable[[], None],
    *,
    stores: Sequence[str] = (),
    caches: Sequence[str] = (),
) -> int:
    """Copy a dataset without some records, remove all else, and return the exit code.

    A stopped run goes on when it is repeated with its receipt.

    Args:
        root: The dataset's folder.
        ids: The ids of the records.
        receipt: Gets all that is found and removed.
        save: Writes the receipt; called before anything is changed, and at the end.
        stores: Values of `--storage-option`.
        caches: Folders of caches, beside the default one.

    Raises:
        BuildError: Others write to the dataset.
        UsageError: The newest version would have no record left.
        StorageError: A file is damaged, or cannot be read or written.
    """
    finish_promotion(root)
    newest = read_version(root)
    found = find(root, newest, ids, keep_names=receipt.keeps_names)
    receipt.add(found)
    known = [*read_versions(root), *finished_generations(root).values()]
    receipt.fingerprints = sorted({*receipt.fingerprints, *(one.fingerprint for one in known)})
    # First: a repeated run no longer finds what this one has removed.
    save()
    say(_told(_effects(root, newest, found, len(ids)), root))
    if found.must_copy:
        base = replace(newest, schema=newest.schema.without_names(found.names))
        folder = folder_for(root, base, f"erase{receipt.salt[:8]}")
        left, words = newest.num_records - found.num_records, store_words(stores)
        if code := build_copy(
            root, base, folder, words, Operation.ERASE, without=ids, num_records=left
        ):
            return code
        if later_numbers(root):
            commit_copy(root, base, folder, Operation.ERASE)
        else:
            _replace_whole(root, base, folder)
    remove_remains(root, receipt)
    receipt.not_removed = [*remove_old_objects(root)]
    for cache in dict.fromkeys([CacheSettings.of().folder, *map(local_path, caches)]):
        forget_dataset(cache, root, receipt.fingerprints)
    receipt.ended = time_text()
    if remnant := next(find_left(root, receipt), ""):
        raise BuildError(
            f"{remnant}: others write to {root}; stop them, and run this command again"
        )
    save()
    return EXIT_DONE


def _replace_whole(root: Folder, base: Manifest, folder: str) -> None:
    """Put a copy in place of a dataset that has not grown, which other programs read in place."""
    with noted(root, Note.REMOVE, [1]):  # which a commit looks for, after its own note
        # In this order: a commit whose note is gone by now has made its version.
        if is_noted(root, Note.COMMIT, None) or later_numbers(root):
            raise BuildError(f"another command commits a version of {root}{END_COMMIT}")
        # An append compares its options with those of the build, and a repair repeats it.
        promote(root, read_manifest(root.below(folder)).fingerprint, folder, built_as=base)


def _verify(args: argparse.Namespace) -> int:
    """Check that nothing of a receipt is left."""
    root, receipt = root_of(args), read_receipt(*_place(args.verify))
    if receipt is None:
        raise UsageError(f"--verify {args.verify}: there is no such file")
    read_version(root)  # fails: there is no dataset
    left = list(find_left(root, receipt))
    if receipt.dataset != root.uri:
        say(f"the receipt is of {receipt.dataset}")
    if args.json:
        print_safely(to_json({"erased": not left, "left": left}))
    else:
        asked = counted(len(receipt.ids), "id")
        print_safely(join_lines(left) if left else f"nothing of {asked} is left in {root}")
    return EXIT_FAULTS if left else EXIT_DONE
