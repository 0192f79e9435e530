"""Messages that blamed the wrong thing, or named none."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import fedguard as fg
from fedguard import cli
from fedguard.errors import ConfigError, FedGuardError
from fedguard.registry import load_registry

PLUGIN = """
from dataclasses import dataclass
from torch import nn
from fedguard.contracts import PoisonAttack, Sight

class Net(nn.Module):
    def __init__(self):
        super().__init__()

class Fits(nn.Linear):
    def __init__(self, shape, classes):
        super().__init__(shape[0], classes)

made = nn.Linear(13, 3)

@dataclass(frozen=True, kw_only=True)
class Mine(PoisonAttack):
    "Does as it likes."
    name = "mine_alone"
    needs = (Sight.NOTHING,)
"""


@pytest.mark.parametrize("value", ["print", "[print]", "open('/x')", "2*3", "nan", "{1: print}"])
def test_a_value_that_is_none_is_blamed_and_not_the_spelling(value):
    with pytest.raises(ConfigError, match="alie: expected a number, a word in quotes or a list for z; got"):
        load_registry().build("attack", f"alie(z={value})")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "nets_and_attacks.py").write_text(PLUGIN)
    return "nets_and_attacks"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Net", r"failed: TypeError: .*but 3 were given. It was called as Net\(\(13,\), 3\)."),
        ("made", "expected what makes a network, a function or a class; got a network."),
    ],
)
def test_a_class_that_is_no_model_says_how_it_was_called(mine, tmp_path, name, said):
    with pytest.raises(FedGuardError, match=said):
        fg.run({"task": {"data": "wine", "model": f"{mine}:{name}"}, "seeds": 1}, store=tmp_path)


def test_a_class_of_a_network_will_do(mine):
    model = load_registry().build("model", f"{mine}:Fits")
    assert tuple(model.build((13,), 3).weight.shape) == (3, 13)


def test_explain_and_list_know_a_plugin_that_is_named(mine):
    def asked(*arguments: str) -> str:
        done = CliRunner().invoke(cli.app, arguments)
        return done.output if done.exception is None else str(done.exception)

    assert "unknown name 'mine_alone'." in asked("explain", "mine_alone")
    assert "For one of your own modules, add --plugin MODULE." in asked("explain", "mine_alone")
    assert "Does as it likes." in asked("explain", "mine_alone", "--plugin", mine)
    assert "(module nets_and_attacks) Does as it likes." in asked("list", "attack", "--plugin", mine)
    assert "--plugin: module 'not_there' cannot be imported" in asked("explain", "mean", "--plugin", "not_there")


def test_breakdown_of_a_run_that_sweeps_nothing_says_what_to_sweep(tmp_path):
    fg.run({"name": "flat", "seeds": 1, "training": {"rounds": 1}}, store=tmp_path, jobs=1)
    done = CliRunner().invoke(cli.app, ["breakdown", "flat", "--store", str(tmp_path)])
    assert isinstance(done.exception, ConfigError)
    assert "expected a run that sweeps clients.malicious or one other key" in str(done.exception)
    assert "it sweeps neither. Put such as clients.malicious: [0, 2, 4] under matrix" in str(done.exception)
    assert "--over" not in str(done.exception)


def test_each_algorithm_says_where_it_stands_whatever_its_parameters_are_called():
    """Data from files have a parameter ``file``."""
    data = load_registry().build("data", {"name": "table", "file": "x.csv", "label": "y"})
    assert data.stands_in() is None
