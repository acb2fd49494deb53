"""splitmix64, the source of all pseudorandom numbers: a pure function of a 64-bit number.

Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014. The n-th
number of a stream is `mix64(seed + n * GOLDEN)`.
"""

from __future__ import annotations

GOLDEN = 0x9E3779B97F4A7C15
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MASK_64 = (1 << 64) - 1


def mix64(value: int) -> int:
    """Return splitmix64's output for a state: a bijection of 64-bit numbers that mixes all bits."""
    value = ((value ^ (value >> 30)) * MIX_1) & MASK_64
    value = ((value ^ (value >> 27)) * MIX_2) & MASK_64
    return value ^ (value >> 31)
