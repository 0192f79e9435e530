"""Somebody looks at an app's messages from its server: what is found is what a suite without the app finds."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from flwr.app import ConfigRecord, RecordDict

import fedguard as fg
from fedguard.bench.records.pictures import load
from fedguard.bench.running.inference.curious import PrivacyAdversary
from fedguard.bench.running.trial import set_up
from fedguard.bridges.flower.witness import EvaluationGrid
from fedguard.bridges.observer import AppModel
from fedguard.bridges.seen import TrainingObservations
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Dataset, Examples
from fedguard.contracts.user_function import UserFunction
from fedguard.errors import NotAllowed
from fedguard.guard import Guard
from fedguard.registry import load_registry
from fedguard.tasks.classification import Classification, fitting
from fedguard.tasks.network import flatten
from tests.forked import fedguard

APP = Path(__file__).parent / "app"
NODES = 4
LEARNS = {"model": "digits.task:Net", "data": "digits.task:load_data", "lr": "lr", "batch_size": "batch-size"}


def small(folder, digits=5):
    """The app with so few digits for each node, four in five to train on: of five, all are in one step."""
    shutil.copytree(APP, folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
    module = folder / "app" / "digits" / "task.py"
    text = module.read_text()
    assert "[partition_id::num_partitions]\n" in text
    module.write_text(text.replace("[partition_id::num_partitions]\n", f"[partition_id::num_partitions][:{digits}]\n"))
    return folder / "app"


@pytest.fixture
def app(tmp_path):
    return small(tmp_path)


def suite(app, attack, **more):
    return {
        "name": "observed",
        "app": {"folder": str(app), "set": {"num-server-rounds": 1}, "training": LEARNS, **more.pop("over", {})},
        "clients": {"total": NODES},
        "matrix": {"attack": attack if isinstance(attack, list) else ["none", attack], "defense": ["own"]},
        "seeds": 1,
        **more,
    }


def ran(app, attack, store, **more):
    found = fg.run(suite(app, attack, **more), store=store, jobs=1)
    return {record["threat_card"]["attack"]: record for record in found.records.values()}


class Own(Classification):
    """The app's nodes as a task of FedGuard's, from the app's first model."""

    def initial_model(self, rng):
        torch.manual_seed(0)  # as the app's server does
        return flatten(torch.nn.Sequential(torch.nn.Linear(64, 10))).clone()


def own_suite(app, attack):
    """What FedGuard's own server, clients and observer make of the same model and data."""
    part = (app / "digits" / "task.py").read_text()
    space: dict = {}
    exec(compile(part, "task.py", "exec"), space)
    dealt = [[Examples(*one) for one in space["load_data"](number, NODES)] for number in range(NODES)]
    parts = tuple(own for own, _ in dealt)
    rest = Examples(torch.cat([one.x for _, one in dealt]), torch.cat([one.y for _, one in dealt]))
    cell = build_cell(
        CellConfig.model_validate(
            {
                "clients": {"total": NODES},
                "training": {"rounds": 1, "lr": 0.1, "batch_size": 32},
                "attack": attack,
            }
        ),
        load_registry(),
    )
    values = torch.cat([rest.x, *(one.x for one in parts)])
    data = Dataset(rest, rest, 10, (float(values.min()), float(values.max())))
    setup = set_up(cell, 0, task := Own(data, parts, None, cell.model, fitting(cell.model, data, None)))
    curious = PrivacyAdversary(cell, setup, task)
    reports = list(cell.architecture.run(replace(setup, observer=curious.observer)))
    watched = [one for report in reports for one in report.watched]
    return curious.run_attack(watched, reports[-1].model, lambda *_: None)


#: From how many dB on an input is there, and what is left is the rounding of a model that is sent in place of its change.
ALL = 60.0
#: By attack, how far the figure of a target may be apart.
AS_FAR = {
    "analytic": ("psnr", 0.1),
    "inverting_gradients(iterations=150, polish=0, restarts=1)": ("psnr", 1.0),
    "labels_llg": ("accuracy", 0.0),
    "loss": ("auc", 0.0),
    "rmia(shadows=4)": ("auc", 0.1),
}


@pytest.fixture(scope="module")
def looked(tmp_path_factory, forked_apps):
    """One run of all these attacks: its folder, the app's, and the records."""
    store = tmp_path_factory.mktemp("looked")
    app = small(store)
    return store, app, ran(app, ["none", *AS_FAR], store)


@pytest.mark.parametrize("attack", AS_FAR)
def test_the_same_updates_tell_as_much_as_in_a_suite_without_an_app(looked, attack):
    store, app, records = looked
    record = records[attack]
    found, own = record["result"]["inference"], own_suite(app, attack)
    assert [one["clients"] for one in found["targets"]] == [one["clients"] for one in own["targets"]]
    assert found["given"] == own["given"] and set(found) == set(own)
    figure, far = AS_FAR[attack]

    def of(targets):
        how = {"psnr": lambda one: min(one["mean"], ALL), "auc": lambda one: one["value"]}.get(figure, float)
        return [how(one[figure]) for one in targets]

    assert np.allclose(of(found["targets"]), of(own["targets"]), rtol=0, atol=far)
    assert record["result"]["app"].get("misfit", 0) < 1e-5
    assert "described_otherwise" not in [one["flag"] for one in record["flags"]]
    if figure == "psnr":
        assert found["score"]["gain"] > (20 if attack.startswith("inverting") else 3)
        pictures = sorted((store / "observed" / "artifacts").glob(f"{record['cell']}-*.npz"))
        assert len(pictures) == NODES and load(pictures[0])[0].shape == (4, 64)


def test_data_of_another_node_are_noticed(app, tmp_path):
    """The team's description is wrong: what is scored is not what the node has."""
    (app / "elsewhere.py").write_text(
        "from digits.task import load_data\n\n\ndef data(number, nodes):\n    return load_data((number + 1) % nodes, nodes)\n"
    )
    wrong = {"training": {**LEARNS, "data": "elsewhere:data"}}
    record = ran(app, "inverting_gradients(iterations=50)", tmp_path, over=wrong)["inverting_gradients(iterations=50)"]
    assert record["result"]["inference"]["score"]["recovered"] == 0 and record["result"]["app"]["misfit"] > 0.5
    assert "differs by" in str([one["said"] for one in record["flags"] if one["flag"] == "described_otherwise"])


def test_each_kind_of_attack_fills_the_same_records_and_is_shown(tmp_path):
    app = small(tmp_path, 100)
    attacks = ["none", "labels_llg", "loss", "gradient_cosine"]
    records = ran(
        *(app, attacks, tmp_path), observer={"round": 2, "victims": 2},
        over={"set": {"num-server-rounds": 2}},
    )  # fmt: skip
    clean = records[None]["result"]
    assert clean["inference"] is None
    for name, record in records.items():
        assert record["status"] == "ok", (name, record["reason"])
        if name is None:
            continue
        result = record["result"]
        assert result["curve"] == clean["curve"], name  # nobody is disturbed
        given = result["inference"]["given"]
        alone = result["inference"]["targets"][0]["clients"]
        seen = {"labels_llg": (1, 1), "gradient_cosine": (2, 1)}.get(name, (0, NODES))
        assert (given["rounds"], len(alone)) == seen, name
        # What the nodes measured after the first round is the accuracy of the model that is sent in the second.
        of_round = {"labels_llg": clean["curve"]["accuracy"][0], "loss": clean["curve"]["accuracy"][1]}
        assert name not in of_round or given["accuracy_of_the_model"] == pytest.approx(of_round[name])
        assert all(value is not None for value in result["inference"]["score"].values() if name == "labels_llg")
        assert record["threat_card"]["in_words"].startswith("A curious server")
        assert record["threat_card"]["observer"]["round"] == 2
    said = fedguard("show", "observed", "--store", str(tmp_path), cwd=tmp_path)
    assert said.returncode == 0 and "gradient_cosine" in said.stdout, said.stdout + said.stderr


def changed(app, **keys):
    return {"training": {**LEARNS, **keys}}


#: What may be wrong with what a team says, and what it is told.
WRONG = [
    ({"local_steps": 2, "batch_size": 2}, "nobody knows which of node"),
    ({"lr": "speed"}, "app.training.lr: expected a number, or one of the app's run configuration, batch-size"),
    ({"model": "digits.task:Nett"}, "has no 'Nett'"),
    ({"model": "digits.task:load_data"}, "app.training.model digits.task:load_data: failed"),
    ({"data": "digits.task:train"}, "app.training.data digits.task:train: failed"),
    ({"data": "math:gcd"}, "expected ((x, y), (x, y)) for partition 0 of 4"),
]


def test_what_cannot_be_inferred_is_refused_before_anything_runs(app, tmp_path):
    """Who does not look needs nothing of it, and is one cell whatever is said."""
    said = [{**LEARNS, **more} for more, _ in WRONG]
    found = fg.run(
        suite(app, [], matrix={"attack": ["none", "dlg"], "defense": ["own"], "app.training": said}),
        store=tmp_path, jobs=1,
    )  # fmt: skip
    rows = [row for row in found.rows() if row["attack"] == "dlg"]
    assert len(rows) == len(WRONG) and len({row["cell"] for row in found.rows()}) == 1 + len(WRONG)
    assert {row["status"] for row in found.rows() if row["attack"] == "none"} == {"ok"}
    for row, (_, expected) in zip(rows, WRONG, strict=True):
        record = found.records[row["cell"], 0]
        assert record["status"] == "refused" and expected in record["reason"], record["reason"]


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("robbing_the_fed", "sends the clients another model, and what an app sends is its strategy's"),
        ("property_inference", "needs clean examples, and an app's server has none that it names"),
    ],
)
def test_what_needs_more_than_a_server_sees_is_refused(app, tmp_path, attack, said):
    with pytest.raises(NotAllowed, match=said):
        fg.run(suite(app, [attack]), store=tmp_path)


def test_what_shows_while_it_runs_is_a_line(app, tmp_path):
    record = ran(app, "analytic", tmp_path, observer={"round": 3})["analytic"]
    assert record["status"] == "failed"
    assert record["reason"].startswith("observer.round: expected one of the 1 rounds of the app")
    (app / "larger.py").write_text("import torch\n\n\ndef net():\n    return torch.nn.Linear(64, 10, bias=False)\n")
    record = ran(app, "dlg", tmp_path, over=changed(app, model="larger:net"))["dlg"]
    assert "expected the parameters that the app sends, linear.weight [10, 64], linear.bias [10]" in record["reason"]


def witness(watches=lambda round: True):
    one = EvaluationGrid(None, Guard(), defended=False)
    one.seen = TrainingObservations(watches)
    return one


def test_under_secure_aggregation_nothing_is_seen():
    masked = SimpleNamespace(content=RecordDict({"secaggplus": ConfigRecord({"stage": "setup"})}))
    with pytest.raises(
        NotAllowed, match="^observer: secure aggregation is at work, .* masked vectors in place of each"
    ):
        witness().send_and_receive([masked])


def test_an_app_with_one_logit_is_observed_as_one_of_two_classes():
    """Cross-entropy over its single output would be 0 whatever the nodes hold."""

    def net():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 5), torch.nn.Linear(5, 1))

    class Made(AppModel):
        def network(self):
            return net()

    built, x = Made(target=UserFunction("app:net")).build((1, 8, 8), 2), torch.rand(3, 1, 8, 8)
    assert torch.equal(built(x), torch.stack([torch.zeros(3), net()(x)[:, 0]], 1))
    assert torch.equal(flatten(built), flatten(net()))
