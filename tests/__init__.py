"""Tests: folders mirror the source; `builds/` has whole builds, `project/` the files around it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
