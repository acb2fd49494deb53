"""Name the keys of a split's statistics that builds write and reports read."""

from __future__ import annotations

LEAKS = "duplicates"  # {other split: images that are in both}
NEAR_LEAKS = "near_duplicates"  # the same of images that are almost equal
RECORD_BYTES = "record_bytes"  # {"estimated": mean bytes per record, "written": the same}
LABEL_DEVIATION = "label_deviation"  # {"mean", "max", "label"}: of class fractions
FIXES = "fixes"  # {fault: images}
SIGNALS = "signals"  # {signal: its summary}
CHANNELS = "channels"  # {"basis", "pixels", "mean", "std"} of red, green and blue
FEATURES = "features"  # {feature: the summary of its numbers or lengths}
