"""Explain each reason of a reject: its meaning, and the fix."""

from __future__ import annotations

from typing import NamedTuple


class ReasonText(NamedTuple):
    """The meaning of a reason and its fix; no fix for what is no fault."""

    meaning: str
    fix: str = ""


_ON = "Choose another policy with --on, or convert the files."
REASONS = {
    "empty_file": ReasonText("The file has no bytes.", "Copy it again, or delete it."),
    "truncated": ReasonText("The image ends too early.", "Copy or download it again."),
    "not_an_image": ReasonText("The content is not an image.", "Delete it, or fix its name."),
    "unsupported_format": ReasonText(
        "TensorFlow cannot decode this format.", "Convert it, or build with --encode jpeg."
    ),
    "corrupt": ReasonText("The pixels cannot be decoded.", "Copy it again, or re-save it."),
    "too_many_pixels": ReasonText("The image is too large to decode.", "Make it smaller."),
    "too_large": ReasonText("The record would be too large.", "Make the image smaller."),
    "policy_exif": ReasonText("EXIF turns or mirrors the image.", _ON),
    "policy_cmyk": ReasonText("The image is CMYK.", _ON),
    "policy_16bit": ReasonText("The image has 16 bits per channel.", _ON),
    "policy_palette": ReasonText("The image has a palette.", _ON),
    "policy_alpha": ReasonText("The image has an alpha channel.", _ON),
    "policy_grayscale": ReasonText("The image is gray.", _ON),
    "policy_animation": ReasonText("The image is animated.", _ON),
    "policy_aspect": ReasonText("The aspect ratio is out of range.", _ON),
    "policy_small": ReasonText("A side is too short.", _ON),
    "policy_extension": ReasonText("The name and the content state different formats.", _ON),
    "missing_file": ReasonText("The file does not exist.", "Fix its path, or restore the file."),
    "unreadable": ReasonText("The file cannot be read.", "Check its permissions and the store."),
    "changed": ReasonText("The file changed during the build.", "Run the same build again."),
    "bad_id": ReasonText("The id is not valid.", "Rename the file, or fix the table's id."),
    "duplicate_id": ReasonText("Another input has the same id.", "Give each input its own id."),
    "missing_label": ReasonText("The input has no label.", "Add it to the table of --labels."),
    "unknown_label": ReasonText(
        "The label is not among the class names.", "Fix the label, or add it to --class-names."
    ),
    "unknown_split": ReasonText("The split is not valid.", "Fix the table's split column."),
    "bad_value": ReasonText("A value does not fit its feature.", "Fix the value or the schema."),
    "transform": ReasonText("The --transform function dropped it or failed.", "See its message."),
    "other_file": ReasonText("Not an image, by name or content."),
    "empty_box": ReasonText("A box has no area in its image. The image is kept."),
    "unmatched_label": ReasonText("A row of --labels matches no image."),
    "ambiguous_label": ReasonText(
        "A row of --labels matches several images.", "Use longer paths in the table."
    ),
    "unused_id": ReasonText("An id of a split list is not in INPUT."),
    "duplicate_image": ReasonText(
        "Another image has the same bytes.", "Delete one, or build with --duplicates drop."
    ),
    "dropped_duplicate": ReasonText("Another image has the same bytes, and is kept."),
    "near_duplicate": ReasonText(
        "Another image is almost the same.", "Delete one, or build with --near-duplicates drop."
    ),
    "dropped_near_duplicate": ReasonText("Another image is almost the same, and is kept."),
    "outside_input": ReasonText(
        "The path leads out of INPUT.", "Move the file, or build with --allow-outside."
    ),
    "incomplete": ReasonText("A file or folder of INPUT cannot be read to its end."),
    "crashed": ReasonText("It stopped its process twice.", "Re-save the image, or delete it."),
    "gone": ReasonText("INPUT lacks a record of the dataset.", "Mount it, or see --max-gone."),
    "lost": ReasonText(
        "Its record was damaged in its shard, and INPUT did not have the same image any more.",
        "Restore the image in INPUT and build the dataset again.",
    ),
    "internal_error": ReasonText("An unexpected error.", "Run again; if it stays, report it."),
}
UNKNOWN = ReasonText("See the messages.")

# Only these are opened for thumbnails: never images that lie outside of INPUT, or that ended or
# stopped a process.
SHOWN = frozenset(
    {
        *(reason for reason in REASONS if reason.startswith("policy_")),
        *("truncated", "unsupported_format", "corrupt", "bad_id", "duplicate_id", "too_large"),
        "missing_label",
        *("unknown_label", "unknown_split", "bad_value", "transform", "duplicate_image"),
        *("dropped_duplicate", "near_duplicate", "dropped_near_duplicate"),
    }
)
