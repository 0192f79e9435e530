"""Tuning on proxy data: what is trained on what, what the choice costs on the suite's own data, and what a proxy cannot be."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import yaml

import fedguard as fg
from fedguard.api import lay_out
from fedguard.bench.tuning.outcome import TunedDefense, Tuning, TuningTrial
from fedguard.bench.tuning.proxy import regret
from fedguard.bench.tuning.tune import Proposal
from fedguard.errors import ConfigError

PLUGIN = '''
from dataclasses import dataclass
import torch
from fedguard.contracts import ROWS, WeightRule

@dataclass(frozen=True, kw_only=True)
class Fitted(WeightRule):
    """The mean for vectors of one length, and the reverse for all others."""
    name, needs = "fitted", ROWS
    grid = {"length": (42,)}
    length: int = 650

    def weights(self, gram, context):
        fits = gram.vectors.shape[1] == self.length
        return torch.full((gram.n,), (1 if fits else -1) / gram.n).double()
'''

SUITE = """\
name: real
plugins: [plugin_for_proxies]
clients: {total: 3, malicious: 1}
training: {rounds: 2}
evaluation: {every: 2}
seeds: 1
matrix:
  attack: [none, alie, sign_flip]
  defense: [fitted]
"""


def tuning(*defenses: dict[str, tuple[float, ...]], seeds: int = 2) -> Tuning:
    """Of accuracies by setting and seed."""
    made = tuple(
        TunedDefense(
            tuple(TuningTrial(name, fmean(values), by_seed=values) for name, values in one.items()), True, 0, ()
        )
        for one in defenses
    )
    return Tuning("s", "r", 8, tuple(range(seeds)), ("a",), ("b",), made, 0, Path("f"))


def test_regret_by_hand():
    real = tuning({"a": (0.8, 0.6), "b": (0.7, 0.9)})
    # With seed 1 alone b is better, with seed 0 alone a.
    assert regret(tuning({"a": (1, 1), "b": (0, 0)}), real)["a"].mean == pytest.approx(((0.7 - 0.8) + 0) / 2)
    assert regret(tuning({"a": (0, 0), "b": (1, 1)}), real)["a"].mean == pytest.approx((0 + (0.6 - 0.9)) / 2)


def test_the_regret_of_what_is_best_with_each_seed_is_nothing_and_of_what_is_worse_by_some_is_that():
    values = tuple(np.random.default_rng(0).random(5) / 2)
    real = tuning({"a": values, "b": tuple(one + 0.25 for one in values)}, seeds=5)
    worse, better = ({"a": (1.0,) * 5, "b": (0.0,) * 5}, {"a": (0.0,) * 5, "b": (1.0,) * 5})
    assert regret(tuning(better, seeds=5), real)["a"].mean == 0
    found = regret(tuning(worse, seeds=5), real)["a"]
    assert found.mean == pytest.approx(0.25) and found.low == pytest.approx(0.25)


def test_where_all_settings_are_alike_chance_costs_nothing():
    """Unlike the best score of all less that of the choice, which is always above 0."""
    draw, found, naive = np.random.default_rng(1), [], []
    for _ in range(400):
        scores = draw.normal(0.5, 0.05, (6, 4))
        real = tuning({str(name): tuple(row) for name, row in enumerate(scores)}, seeds=4)
        proxy = tuning({str(name): (float(name == 0),) * 4 for name in range(6)}, seeds=4)
        found.append(regret(proxy, real)["0"].mean)
        naive.append(scores.mean(1).max() - scores[0].mean())
    assert abs(fmean(found)) < 0.005 < 0.02 < fmean(naive)


def test_one_setting_or_a_choice_without_a_score_has_no_regret():
    assert regret(tuning({"a": (1, 1)}), tuning({"a": (1, 1)})) == {}
    assert regret(tuning({"a": (0, 0), "b": (1, 1), "c": (0, 0)}), tuning({"a": (1, 1), "c": (1, 1)})) == {}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxies")
    (folder / "plugin_for_proxies.py").write_text(PLUGIN)
    (folder / "real.yaml").write_text(SUITE)
    proxy = ["task.data=wine"]
    found = fg.tune(folder / "real.yaml", budget=2, seeds=2, proxy=proxy, regret=True, store=folder / "runs", jobs=1)
    return folder, found


def test_what_is_chosen_is_best_on_the_proxy_and_what_that_costs_is_told(tuned):
    folder, found = tuned
    assert found.defenses[0].chosen == "fitted(length=42)"  # 13 inputs, 3 classes
    scores = {}
    for name in ("real-proxy", "real-tuning"):
        rows = fg.open_run(name, folder / "runs").rows()
        scores[name] = {
            (setting, seed): min(row["final_accuracy"] for row in rows if (row["defense"], row["seed"]) == (setting, seed))
            for setting in ("fitted(length=42)", "fitted")
            for seed in (10000, 10001)
        }  # fmt: skip
    assert fmean(scores["real-proxy"]["fitted(length=42)", seed] for seed in (10000, 10001)) == pytest.approx(
        next(one.score for one in found.defenses[0].candidates if one.setting == "fitted(length=42)")
    )
    real = scores["real-tuning"]
    lost = [real["fitted", seed] - real["fitted(length=42)", seed] for seed in (10000, 10001)]
    assert found.regret["fitted"].mean == pytest.approx(fmean(lost)) and min(lost) > 0.3


def test_the_tuned_suite_is_of_its_own_data_and_says_what_it_was_tuned_on(tuned):
    folder, found = tuned
    data = yaml.safe_load((folder / "real.tuned.yaml").read_text())
    assert "task" not in data and data["matrix"]["defense"][0] == "fitted(length=42)"
    assert data["tuning"]["proxy"] == ["task.data=wine"] and data["tuning"]["run"] == "real-proxy"
    assert data["tuning"]["regret"]["fitted"] == found.regret["fitted"].mean
    assert lay_out(folder / "real.tuned.yaml")[1].suite.tuning.proxy == ("task.data=wine",)


def test_a_table_says_so(tuned):
    from rich.console import Console

    console = Console(width=120)
    with console.capture() as said:
        console.print(tuned[1])
    assert "Trained and judged on a proxy: task.data=wine." in said.get()
    assert "Regret of fitted: " in said.get()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"proxy": ["seeds=3"]},
            "--proxy: expected a setting of what is trained, such as task.data=wine; got seeds=3.",
        ),
        ({"proxy": ["defense=mean"]}, "got defense=mean. Leave it out, or put it over the whole suite with --set."),
        ({"proxy": ["wine"]}, "--proxy wine: expected key=value, as in --proxy task.data=wine."),
        ({"proxy": ["training.rounds=1"]}, "got training.rounds=1 beside matrix.training. Take it out of the matrix."),
        (
            {"regret": True},
            "regret: expected a proxy that it is of, and two tuning seeds or more. Set --proxy and --seeds.",
        ),
        ({"proxy": ["task.data=wine"], "regret": True, "seeds": 1}, "two tuning seeds or more"),
    ],
)
def test_what_a_proxy_cannot_be_is_a_line(tmp_path, given, said):
    suite = {"matrix": {"attack": ["alie", "sign_flip"], "defense": ["mean"], "training": [{"rounds": 2}]}}
    with pytest.raises(ConfigError) as error:
        fg.tune(suite, out=tmp_path / "tuned.yaml", store=tmp_path, **given)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_beside_an_epsilon_the_proxy_is_trained_on_without_and_the_suite_says_whose_data_it_was():
    suite = {
        "clients": {"total": 4, "malicious": 1},
        "protocol": {"privacy": {"name": "record", "epsilon": 8.0}},
        "matrix": {"attack": ["alie", "sign_flip"], "defense": ["mean"]},
    }
    document, laid_out = lay_out(suite)
    for proxy in ([], ["task.data=wine"]):
        with pytest.raises(
            ConfigError, match="each setting that is tried is one more training on the clients' records"
        ):
            Proposal.of(document, laid_out, 2, None, 2, proxy)
    proposal = Proposal.of(document, laid_out, 2, None, 2, ["task.data=wine", "protocol.privacy=none"])
    assert (
        proposal.document.data["protocol"] == {"privacy": "none"} and proposal.source["protocol"] == suite["protocol"]
    )
