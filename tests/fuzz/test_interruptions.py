"""Interrupted runs lose nothing: `tests/fuzz/interruptions.py` in its short form."""

from __future__ import annotations

import pytest

from tests.fuzz.interruptions import faults, moments, undisturbed


@pytest.mark.slow
def test_a_run_that_is_killed_interrupted_or_loses_a_worker_equals_one_that_is_not(tmp_path):
    whole = undisturbed(tmp_path)
    for number, moment in enumerate(moments(4, 1, len(whole))):
        (tmp_path / str(number)).mkdir()
        assert faults(moment, whole, tmp_path / str(number)) == [], moment
