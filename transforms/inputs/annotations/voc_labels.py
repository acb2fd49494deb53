"""Parse Pascal VOC annotation files.

Format: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from shardwright.transforms.inputs.annotations.boxes import ImageSize, stated_size

_EDGES = ("ymin", "xmin", "ymax", "xmax")
_NO_POSE = "unspecified"


class BadLabel(Exception):  # noqa: N818 - a fault of the file, not of the program
    """An invalid label file; the message is one line."""


class VocObject(NamedTuple):
    """An object: its class, its box in pixels (ymin, xmin, ymax, xmax), its pose and flags."""

    name: str
    edges: tuple[float, float, float, float]
    pose: str
    is_truncated: bool
    is_difficult: bool


class VocLabel(NamedTuple):
    """The content of an annotation file; `size` is None if the file states none."""

    size: ImageSize | None
    objects: tuple[VocObject, ...]


def parse_voc(data: bytes) -> VocLabel:
    """Parse a file as TFDS does: pixels unchanged, poses in lower case.

    A missing flag is False, a missing pose "unspecified".

    Raises:
        BadLabel: The file is not XML; it has a DOCTYPE, which no annotation needs and which can
            make a parser fill all memory; or an object has no name or box.
    """
    root = _parse_xml(data)
    if root.tag != "annotation":
        raise BadLabel(f"its root is <{root.tag[:50]}>, not <annotation>")
    sides = (_number(root.findtext(f"size/{side}")) for side in ("height", "width"))
    return VocLabel(stated_size(*sides), tuple(_objects(root)))


def _objects(root: Element) -> Iterator[VocObject]:
    for number, element in enumerate(root.findall("object"), 1):
        name = _text(element, "name")
        if not name:
            raise BadLabel(f"object {number} has no <name>")
        edges = tuple(_number(element.findtext(f"bndbox/{edge}")) for edge in _EDGES)
        missing = next(
            (edge for edge, value in zip(_EDGES, edges, strict=True) if value is None), None
        )
        if missing:
            raise BadLabel(f"object {number} ({name}) has no <bndbox> with a number as {missing}")
        flags = (_text(element, flag) == "1" for flag in ("truncated", "difficult"))
        yield VocObject(name, edges, _text(element, "pose").lower() or _NO_POSE, *flags)  # type: ignore[arg-type]  # none is None


def _text(element: Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _parse_xml(data: bytes) -> Element:
    builder, parser = TreeBuilder(), expat.ParserCreate()
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(data, True)
        return builder.close()
    # LookupError: an unknown encoding.
    except (expat.ExpatError, ValueError, LookupError, AssertionError) as error:
        raise BadLabel(f"it is not XML: {error}") from error


def _refuse_doctype(*_: object) -> NoReturn:
    raise BadLabel("it has a DOCTYPE, which no annotation needs: remove it")
