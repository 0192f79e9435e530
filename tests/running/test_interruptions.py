"""Interrupted runs lose nothing: `tests/fuzz/interruptions.py` in its short form, with processes that are forked."""

from __future__ import annotations

import subprocess
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from fedguard.bench.running.engines import local
from tests.forked import Forked
from tests.fuzz.interruptions import faults, moments, undisturbed


class Told(Forked):
    """A command of FedGuard with workers of its own, forked as it is, that says what it says into a file."""

    def __init__(self, command: list[str], folder: Path, said: IO[str]) -> None:
        self._said = said
        with chdir(folder), pytest.MonkeyPatch.context() as patch:
            patch.setattr("fedguard.bench.running.execute.LocalPool", local.LocalPool)
            patch.setattr(local, "subprocess", SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE))
            super().__init__(["fedguard", *command])

    def wait(self, timeout: float = 600) -> int:
        code = super().wait(timeout)
        self._said.write(self.stdout.read() + self.last_words())
        return code


@pytest.mark.slow
def test_a_run_that_is_killed_interrupted_or_loses_a_worker_equals_one_that_is_not(tmp_path):
    whole = undisturbed(tmp_path)
    for number, moment in enumerate(moments(4, 1, len(whole))):
        (tmp_path / str(number)).mkdir()
        assert faults(moment, whole, tmp_path / str(number), Told) == [], moment
