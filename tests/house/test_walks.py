"""How many files a reader opens who follows an update, or an epsilon, through the code: only fewer is progress."""

from __future__ import annotations

import pytest

from fedguard.architectures import release
from tests.walks import WALKS, has_word, update_walk

#: How many files there may be on each walk; `tests/walks.py` says how they are counted.
AT_MOST = {
    "an update under the mean": 22,
    "an update under an attack and nnm >> trimmed_mean": 28,
    "an epsilon": 15,
}


def check(name: str) -> None:
    files, allowed = WALKS[name](), AT_MOST[name]
    assert len(files) <= allowed, f"{name}: {len(files)} files, expected at most {allowed}: {', '.join(files)}"
    assert len(files) > allowed - 3, f"{name}: {len(files)} of {allowed} allowed; lower the allowance"


def test_the_walk_of_an_update_becomes_no_longer():
    check("an update under the mean")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in AT_MOST if name != "an update under the mean"])
def test_no_walk_becomes_longer(name):
    check(name)


def test_a_layer_that_hands_an_update_on_is_counted(monkeypatch):
    """A function of another file of the product in the way of the aggregate: the walk is one file longer."""
    before, right = update_walk(), release.aggregate
    namespace = {"right": right}
    source = "def hand_on(pipeline, rows, context, states):\n    return right(pipeline, rows, context, states)\n"
    exec(compile(source, str(release.__file__).replace("release.py", "planted.py"), "exec"), namespace)
    monkeypatch.setattr(release, "aggregate", namespace["hand_on"])
    assert set(update_walk()) - set(before) == {"fedguard/architectures/planted.py"}


def test_a_function_has_the_words_of_its_keys_and_arguments():
    def keyed(record):
        return record["epsilon"]

    def given(epsilon):
        return epsilon

    assert has_word(keyed.__code__, "epsilon") and has_word(given.__code__, "epsilon")
    assert not has_word(update_walk.__code__, "epsilon")
