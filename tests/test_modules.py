"""A module of the user's own is what its file says now, and not what Python compiled of it before."""

from __future__ import annotations

import os
import sys

import pytest

from fedguard.modules import load_module


@pytest.fixture(autouse=True)
def compiling(monkeypatch):
    """Python keeps what it compiles, as it does for most users."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield
    sys.modules.pop("written_twice", None)


def test_a_file_that_is_changed_within_a_second_is_read_again(tmp_path):
    """To Python both are the same file: of one size and one second."""
    file = tmp_path / "written_twice.py"
    for value in (1, 2):
        file.write_text(f"VALUE = {value}\n")
        os.utime(file, ns=(10**18 + value, 10**18 + value))
        assert value == load_module("written_twice", tmp_path).VALUE
    assert not list(tmp_path.rglob("*.pyc"))
    assert not sys.dont_write_bytecode, "what Python does elsewhere is as it was"
