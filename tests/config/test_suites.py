"""No changed suite is answered by a fault of ours: `tests/fuzz/suites.py` in its short form."""

from __future__ import annotations

import pytest

from fedguard.errors import ConfigError
from tests.fuzz import suites
from tests.fuzz.suites import FILES, answer, cases

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("count", [75, pytest.param(250, marks=pytest.mark.slow)])
def test_every_changed_suite_is_laid_out_or_refused_in_one_line(tmp_path, count):
    path, said = tmp_path / "suite.yaml", []
    for case in cases(len(FILES) + count, seed=1):
        path.write_bytes(case.content)
        try:
            said.append(answer(path))
        except AssertionError as error:
            pytest.fail(f"{case.what}: {error}")
    assert sum(one.endswith(" cells") for one in said) >= 0.08 * count  # it does not refuse all
    assert sum(str(path) in one for one in said) >= 0.4 * count


@pytest.mark.parametrize("swallowed", [OSError, Exception])
def test_a_hang_is_seen_though_the_reader_swallows_errors(monkeypatch, tmp_path, swallowed):
    def hangs(path):
        try:
            while True:
                pass
        except swallowed as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from error

    monkeypatch.setattr(suites, "read_document", hangs)
    monkeypatch.setattr(suites, "LIMIT", 0.05)
    with pytest.raises(AssertionError, match=r"Late: .still busy after 0.05 s"):
        answer(tmp_path / "suite.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("my-key: 1", ":1: my-key: unknown key 'my-key'"),
        ("training: {batch-size: 8}", ":1: training.batch-size: unknown key 'batch-size'. Did you mean 'batch_size'?"),
        ("", "got nothing"),
        ("seeds: 1:30", ":1: seeds: expected"),
        ("training: {rounds: 010}", ":1: training.rounds: expected a number; got '010'"),
        ("training: {lr: true}", ":1: training.lr: expected a number; got True"),
        ("training: {lr: '0.1'}", ":1: training.lr: expected a number; got '0.1'"),
        ("attack: alie(z=True)", "z: expected a number; got True"),
        (
            "matrix: {attack: ['alie(z=print)']}",
            ":1: matrix.attack[0]: alie: expected a number, a word in quotes or a list for z; got 'print'",
        ),
        ("seeds: 1000000", ":1: seeds: expected a number of seeds from 1 to 10,000"),
        ("1: 2", ":1: keys: expected words as keys; got '1'"),
        ("name: !!float x", ":1: not valid YAML: expected no tags"),
        ("matrix: &a {attack: *a}", "aliases"),
        ("name: " + "x" * 5000, "got 'xxx"),
        ("training: {local_epochs: 1000000000}", ":1: training.local_epochs: expected"),
    ],
)
def test_it_says_where_and_what(tmp_path, text, said):
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    assert said in answer(path)
