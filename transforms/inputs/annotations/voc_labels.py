"""One Pascal VOC annotation file. The format: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from transforms.inputs.annotations.boxes import ImageSize, stated_size

_EDGES = ("ymin", "xmin", "ymax", "xmax")
_NO_POSE = "unspecified"


class BadLabel(Exception):  # noqa: N818 - the file's, not the program's
    """A label file that cannot be taken at its word: one line that says why."""


class VocObject(NamedTuple):
    """One object: its class, the edges of its box in pixels (ymin, xmin, ymax, xmax), and what is said of it."""

    name: str
    edges: tuple[float, float, float, float]
    pose: str
    is_truncated: bool
    is_difficult: bool


class VocLabel(NamedTuple):
    """What a file tells of its image; the size is None where it states none."""

    size: ImageSize | None
    objects: tuple[VocObject, ...]


def parse_voc(data: bytes) -> VocLabel:
    """Read a file. As in TFDS, pixels are taken as they stand, and poses in lower case; what is optional is False, or "unspecified".

    Raises:
        BadLabel: It is no XML, or has a DOCTYPE, which no annotation needs and which can make a parser fill all memory; an object has
            no name or box.
    """
    root = _parse_xml(data)
    if root.tag != "annotation":
        raise BadLabel(f"its root is <{root.tag[:50]}>, and not <annotation>")
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
        yield VocObject(name, edges, _text(element, "pose").lower() or _NO_POSE, *flags)  # type: ignore[arg-type]  # no None is left


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
    except (
        expat.ExpatError,
        ValueError,
        LookupError,
        AssertionError,
    ) as error:  # LookupError: an encoding that nobody knows
        raise BadLabel(f"it is no XML: {error}") from error


def _refuse_doctype(*_: object) -> NoReturn:
    raise BadLabel("it has a DOCTYPE, which no annotation needs: remove it")
