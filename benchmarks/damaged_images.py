#!/usr/bin/env python
"""Count which damaged images each `--check` rejects, beside those that TensorFlow cannot decode.

Of each format, the same number of images is cut off, changed in some bytes, or overwritten with
zeros in some sectors, as disks and broken transfers do (see damage.py).

Exit code 1 if TensorFlow cannot decode more than 1 % of the images that a check passes: 'decode'
for all damage, 'header' for those that are cut off. `--no-check` leaves that out.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import page
import raw_results

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import damage

CUT = next(iter(damage.KINDS))
MOST_MISSED = 0.01


class Found(NamedTuple):
    """Counts of one format and kind of damage.

    Attributes:
        images: All images.
        header: Those that `--check header` rejects.
        decode: Those that `--check decode` rejects.
        undecodable: Those that TensorFlow cannot decode.
        missed_by_header: Of these, those that `header` passes.
        missed_by_decode: Of these, those that `decode` passes.
    """

    images: int
    header: int
    decode: int
    undecodable: int
    missed_by_header: int
    missed_by_decode: int


Results = dict[tuple[str, str], Found]  # by format and kind of damage


def look(images: Sequence[bytes], bad: Sequence[bool]) -> Found:
    """Count what the checks find, beside the images that are `bad` for TensorFlow."""
    header = [damage.finds(image, "header") for image in images]
    decode = [damage.finds(image, "decode") for image in images]
    return Found(
        len(images),
        sum(header),
        sum(decode),
        sum(bad),
        sum(fails and not found for fails, found in zip(bad, header, strict=True)),
        sum(fails and not found for fails, found in zip(bad, decode, strict=True)),
    )


def unpack(raw: Any) -> Results:
    return {case: runs[0] for case, runs in raw_results.unpack(raw, Found).items()}


def targets(results: Results) -> list[page.Target]:
    cut = [found for (_, kind), found in results.items() if kind == CUT]
    images = sum(found.images for found in results.values())
    header = sum(found.missed_by_header for found in cut) / sum(found.images for found in cut)
    decode = sum(found.missed_by_decode for found in results.values()) / images
    return [
        page.Target(
            f"at most {MOST_MISSED:.0%} of the images pass `{check}`, but not TensorFlow: {of}",
            f"{share:.2%}",
            share <= MOST_MISSED,
        )
        for check, of, share in (("header", CUT, header), ("decode", "all damage", decode))
    ]


def summary(results: Results) -> list[str]:
    """Return the table of docs/images.md."""
    rows = [
        [
            f"{image_format}, {kind}",
            *(f"{number / found.images:.1%}" for number in (
                found.undecodable, found.header, found.decode,
                found.missed_by_header, found.missed_by_decode,
            )),
        ]
        for (image_format, kind), found in results.items()
    ]  # fmt: skip
    head = ["", "TensorFlow cannot decode", "`header` rejects", "`decode` rejects",
            "`header` passes, TensorFlow fails", "`decode` passes, TensorFlow fails"]  # fmt: skip
    return page.table(head, rows)


def render(results: Results, circumstances: Sequence[str]) -> str:
    """Return a section of Markdown."""
    of_each = sum(found.images for (name, _), found in results.items() if name == "jpeg")
    title = f"## Damaged images\n\n{of_each:,} of each format:"
    return "\n".join([title, "", *circumstances, "", *summary(results)])


def main() -> int:
    parser = page.parser(__doc__, rounds=1)
    parser.add_argument("--images", type=int, default=1000, help="images of each format")
    args = parser.parse_args()
    cases = [(name, kind) for name in damage.FORMATS for kind in damage.KINDS]
    counts = {kind: args.images // 3 + (number < args.images % 3)
              for number, kind in enumerate(damage.KINDS)}  # fmt: skip
    made = {case: damage.damaged(*case, counts[case[1]]) for case in cases}
    bad = iter(damage.undecodable(list(itertools.chain(*made.values()))))
    found = {
        case: [look(images, list(itertools.islice(bad, len(images))))]
        for case, images in made.items()
    }
    with page.scratch_folder("damaged-", args.dir) as folder:
        about = raw_results.circumstances(
            folder, args.rounds, packages=["pillow"], sources=("shardwright", "transforms")
        )
    result = raw_results.Result("damaged_images", about, raw_results.pack(found))
    return raw_results.finish(result, sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
