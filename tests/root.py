"""The root of the checkout, from wherever in ``tests/`` a test is."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
