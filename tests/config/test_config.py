"""Suite files: what they mean, and one clear line for everything that is wrong with them."""

from __future__ import annotations

import copy
import json
import re
import sys
from typing import get_args

import numpy as np
import pytest
import yaml

import fedguard as fg
from fedguard.api import lay_out
from fedguard.config import Document, build_cell, plan, read_document, read_suite
from fedguard.config.algorithms import build_algorithm, settings
from fedguard.config.document import parse_yaml
from fedguard.config.layout import override
from fedguard.config.schema import CellConfig
from fedguard.contracts import Training
from fedguard.contracts.specs import split_spec
from fedguard.errors import ConfigError, FedGuardError
from fedguard.registry import load_registry
from tests.root import ROOT

SUITES = [
    *sorted((ROOT / "examples").glob("*.yaml")),
    *sorted((ROOT / "examples" / "results").glob("*.yaml")),
    *sorted((ROOT / "examples" / "anchors").glob("*.yaml")),
    *sorted((ROOT / "fedguard" / "templates").glob("suite*.yaml")),
]

SUITE = """\
schema: 1
name: small
task: {data: digits, model: softmax, partition: {name: dirichlet, alpha: 0.5}}
clients: {total: 10, malicious: 2}
training:
  rounds: 3
  lr: 1e-1
protocol: {secure_aggregation: none}
seeds: 2
matrix:
  attack: [none, alie]
  defense: [mean, nnm >> trimmed_mean]
"""


def laid_out(text=SUITE, *settings):
    data, lines = parse_yaml(text, "small.yaml")
    document = override(Document(data, "small.yaml", None, lines), settings)
    return plan(document, read_suite(document))


def complaint(text=SUITE, *settings) -> str:
    with pytest.raises(FedGuardError) as caught:
        laid_out(text, *settings)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.name)
def test_every_suite_that_we_ship_is_legal(path):
    _, laid = lay_out(path)
    assert [cell.label for cell in laid.cells if not cell.verdict.reasons]


def test_yaml_without_traps():
    data, _ = parse_yaml(
        "a: 1e-5\nb: off\nc: no\nd: true\ne: 1_000\nf: .5\ng: 2026-01-01\nh: 1.\ni: -3\nj: ~\nk: 0.9\nl: NO"
    )
    assert data == {
        "a": 1e-5, "b": "off", "c": "no", "d": True, "e": 1000, "f": 0.5, "g": "2026-01-01", "h": 1.0, "i": -3, "j": None, "k": 0.9,
        "l": "NO",
    }  # fmt: skip


def test_the_matrix_is_a_product_and_controls_are_added():
    laid = laid_out(SUITE, "matrix={attack: [alie, label_flip], defense: [median, krum]}")
    assert [(swept["attack"], swept["defense"]) for swept, _ in laid.positions] == [
        ("alie", "median"), ("alie", "krum"), ("label_flip", "median"), ("label_flip", "krum"),
    ]  # fmt: skip
    assert sorted(cell.label for cell in laid.controls) == [
        "alie against mean", "dropout against krum", "dropout against mean", "dropout against median", "label_flip against mean",
        "no attack against krum", "no attack against mean", "no attack against median",
    ]  # fmt: skip
    assert laid.cells[0].label == "no attack against mean"  # what others compare themselves with comes first


def test_numbers_of_numpy_may_stand_in_a_suite_in_python():
    attacks = ["none", {"name": "gram_search", "steps": np.int64(3)}]
    suite = {
        "name": "numpy",
        "clients": {"total": 8, "malicious": 2},
        "matrix": {"attack": attacks, "defense": ["median"]},
    }
    laid = lay_out(suite)[1]
    assert "gram_search(steps=3) against median" in [cell.label for cell in laid.cells]
    assert len(laid.controls) == len({cell.id for cell in laid.controls}) == len(laid.cells) - 2


def test_any_dotted_key_can_be_swept():
    laid = laid_out(
        SUITE, "matrix={clients.malicious: [1, 0.3], task.partition.alpha: [0.1, 1], training.lr: [0.1]}", "attack=alie"
    )
    assert [cell.malicious for _, cell in laid.positions] == [1, 1, 3, 3]
    assert [cell.partition.alpha for _, cell in laid.positions] == [0.1, 1, 0.1, 1]
    assert laid.positions[0][0] == {
        "clients.malicious": "1", "task.partition.alpha": "0.1", "training.lr": "0.1", "attack": "alie", "defense": "mean",
    }  # fmt: skip


def test_a_plain_name_becomes_a_mapping_when_a_parameter_is_swept():
    laid = laid_out(SUITE, "task.partition=dirichlet", "matrix={task.partition.alpha: [0.2]}")
    assert laid.positions[0][1].partition.alpha == 0.2


def test_the_identity_of_a_cell():
    first, same = laid_out().positions[3][1], laid_out(SUITE, "training.lr=0.1").positions[3][1]
    assert first.id == same.id
    assert build_cell(CellConfig.model_validate(first.canonical), load_registry()).id == first.id
    written = laid_out(SUITE.replace("1e-1", "0.10").replace("nnm >> trimmed_mean", "{name: nnm >> trimmed_mean}"))
    assert written.positions[3][1].id == first.id
    for change in (
        "training.lr=0.2",
        "task.partition.alpha=0.6",
        "clients.malicious=3",
        "threat.knowledge=[own_data]",
        "evaluation.every=2",
    ):
        assert laid_out(SUITE, change).positions[3][1].id != first.id, change
    for change in ("name=other", "seeds=7", "gate={alpha: 0.01}"):
        assert laid_out(SUITE, change).positions[3][1].id == first.id, change


def test_a_cell_without_attack_is_the_same_whoever_would_have_attacked():
    plain = laid_out().positions[0][1]
    assert laid_out(SUITE, "threat.knowledge=[own_data]").positions[0][1].id == plain.id
    told = laid_out(SUITE, "clients.malicious=3", "clients.assumed_f=2").positions[0][1]
    assert told.id == plain.id


def test_counts_and_fractions():
    cell = laid_out(SUITE, "clients={total: 30, per_round: 0.5, malicious: 0.2, assumed_f: 0.1}").positions[1][1]
    assert (cell.clients.expected, cell.malicious, cell.assumed_f) == (15, 6, 3)
    assert laid_out(SUITE, "clients.per_round=1").positions[0][1].clients.expected == 1
    assert laid_out(SUITE, "clients.per_round=1.0").positions[0][1].clients.expected == 10


@pytest.mark.parametrize(
    ("defense", "per_round", "told"),
    [("mean", 20, 9), ("trimmed_mean", 20, 9), ("krum", 20, 9), ("bucketing >> median", 20, 4), ("median", 8, 7)],
)
def test_f_unknown_tells_each_rule_the_most_it_stands(defense, per_round, told):
    """Of 20: the largest minority for which n >= 2f + 1 holds behind every stage; of 8 drawn, ceil(8/20 * 8) = 4 would be too many."""
    settings = (
        f"defense={defense}",
        f"clients={{total: 20, per_round: {per_round}, malicious: 2, assumed_f: unknown}}",
    )
    cell = laid_out("attack: sign_flip", *settings).positions[0][1]
    assert cell.assumed_f == told
    assert not cell.verdict.reasons
    known = laid_out("attack: sign_flip", *settings, f"clients.assumed_f={cell.assumed_f}").positions[0][1]
    assert known.id != cell.id


def test_seeds():
    assert read_suite(Document({"seeds": 3})).seeds == (0, 1, 2)
    assert read_suite(Document({"seeds": [5, 9]})).seeds == (5, 9)


def test_masking_refuses_each_rule_that_needs_more_than_the_sum():
    laid = laid_out(SUITE, "protocol.secure_aggregation=full")
    reasons = {swept["defense"]: " ".join(cell.verdict.reasons) for swept, cell in laid.positions}
    assert "secure_aggregation: full hides it" in reasons["nnm >> trimmed_mean"]
    assert reasons["mean"] == ""


def test_an_attack_without_malicious_clients_is_refused():
    _, cell = laid_out(SUITE, "clients.malicious=0").positions[2]
    assert cell.verdict.reasons == ("alie has no client to act through. Set clients.malicious.",)


def test_what_is_said_of_settings_and_nothing_is_changed_in_place():
    data = {"training": {"rounds": 3}}
    before = copy.deepcopy(data)
    override(Document(data), ["training.rounds=9"])
    assert data == before


def test_a_swept_key_can_be_set_dots_and_all():
    laid = laid_out(SUITE, "matrix.training.lr=[0.1, 0.2]")
    assert {swept["training.lr"] for swept, _ in laid.positions} == {"0.1", "0.2"}
    assert "--set matrix.training.lr[1] (training.lr): expected" in complaint(SUITE, "matrix.training.lr=[0.1, fast]")


def test_the_resolved_suite_runs_as_it_is(tmp_path):
    _, laid = lay_out(ROOT / "examples" / "quick.yaml")
    path = tmp_path / "resolved.yaml"
    path.write_text(yaml.safe_dump(laid.suite.model_dump(mode="json", by_alias=True)))
    assert [cell.id for cell in lay_out(path)[1].cells] == [cell.id for cell in laid.cells]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.lrr=1", "--set training.lrr: unknown key 'lrr'. Did you mean 'lr'?"),
        ("training.lr=fast", "--set training.lr: expected a number; got 'fast'."),
        ("training.lr=-1", "--set training.lr: expected greater than 0; got -1."),
        ("training.lr=.nan", "--set training.lr: expected a finite number; got nan."),
        ("training.rounds=2.5", "--set training.rounds: expected a whole number; got 2.5."),
        ("clients.malicious=10", "malicious: expected fewer than clients.total = 10; got 10."),
        ("clients.malicious=1.5", "--set clients.malicious: expected a number of clients (4) or a fraction of them (0.2); got 1.5."),
        ("clients.malicious=-1", "--set clients.malicious: expected a number of clients (4) or a fraction of them (0.2); got -1."),
        ("clients.malicious=20%", "--set clients.malicious: expected a number of clients (4) or a fraction of them (0.2); got '20%'."),
        ("clients.per_round=11", "per_round: expected from 1 to clients.total = 10 clients, or a fraction; got 11."),
        ("tsk.data=digits", "--set tsk.data: unknown key 'tsk'. Did you mean 'task'?"),
        ("task.data=cifar", "--set task.data: unknown data 'cifar'. Expected one of: breast_cancer, cartpole, digits,"),
        ("task.model=sofmax", "--set task.model: unknown model 'sofmax'. Did you mean 'softmax'?"),
        ("task.partition={name: dirichlet, alfa: 1}", "unknown parameter of dirichlet 'alfa'. Did you mean 'alpha'?"),
        ("task.partition={name: dirichlet, alpha: 0}", "dirichlet: alpha: expected more than 0; got 0.0."),
        ("seeds=0", "--set seeds: expected a number of seeds from 1 to 10,000, or a list of 1 to 10,000 different seeds; got 0."),
        ("seeds=[1, 1]", "--set seeds: expected a number of seeds from 1 to 10,000, or a list of 1 to 10,000 different seeds; got [1, 1]."),
        ("seeds=[-1]", "--set seeds[0]: expected greater than or equal to 0; got -1."),
        ("matrix.attack=alie", "--set matrix.attack: expected a list; got 'alie'."),
        ("matrix.attack=[]", "attack: expected a list with at least one choice."),
        ("matrix.attack=[alie, {name: alie, zz: 3}]", "--set matrix.attack[1]: unknown parameter of alie 'zz'. Did you mean 'z'?"),
        ("matrix.attak=[alie]", "--set matrix.attak: unknown key to sweep 'attak'. Did you mean 'attack'"),
        ("matrix={training.lrr: [1]}", "--set matrix.training.lrr[0] (training.lrr): unknown key 'lrr'. Did you mean 'lr'?"),
        ("matrix={training.lr: [0.1, fast]}", "--set matrix.training.lr[1] (training.lr): expected a number"),
        ("protocol.secure_aggregation=maybe", "--set protocol.secure_aggregation: unknown masking 'maybe'. Expected one of: full, group_testing, groups, none."),
        ("protocol.privacy=dp", "--set protocol.privacy: unknown noise 'dp'. Expected one of: client, distributed, none, record."),
        ("clients=5", "expected a mapping of its keys; got 5."),
        ("training=5", "expected a mapping of its keys; got 5."),
        ("threat.knowledge=[everything]", "expected 'honest_updates', 'own_data', 'model' or 'defense'; got 'everything'."),
        ("threat={first_round: 5, last_round: 4}", "threat.last_round: expected no less than threat.first_round."),
        ("gate.metrics={final: {}}", "--set gate.metrics.final: expected 'final_accuracy', 'best_accuracy'"),
        ("gate={metrics: {final_accuracy: {margin: -1}}}", "margin: expected greater than or equal to 0; got -1."),
        ("training={algorithm: fedsgd, momentum: 0.9}", "set worker_momentum for momentum across rounds."),
        ("name=../../etc", "--set name: expected a folder name of letters, digits, '.', '_' and '-'; got '../../etc'."),
        ("schema=2", "--set schema: expected 1; got 2."),
        ("plugins=[no_such_module]", "--set plugins[0]: module 'no_such_module' cannot be imported"),
        ("training.lr.x=1", "--set training.lr.x: training.lr.x cannot be set: 'lr' is 0.1, not a mapping."),
        ("rounds", "--set rounds: expected key=value"),
    ],
)  # fmt: skip
def test_bad_settings(setting, message):
    assert message in complaint(SUITE, setting)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  lr: 1e-1", "  lrr: 1e-1", "small.yaml:7: training.lrr: unknown key 'lrr'. Did you mean 'lr'?"),
        ("  rounds: 3", "  rounds: three", "small.yaml:6: training.rounds: expected a whole number"),
        ("  rounds: 3", "  rounds: 3\n  rounds: 4", "small.yaml:7: training.rounds is given twice (first in line 6)."),
        ("[none, alie]", "[none, aile]", "small.yaml:11: matrix.attack[1]: unknown attack 'aile'. Did you mean 'alie'"),
        ("[mean, nnm", "[mean, nmn", "small.yaml:12: matrix.defense[1]: unknown defense 'nmn'. Did you mean 'nnm'"),
        ("matrix:", "matrx:", "small.yaml:10: matrx: unknown key 'matrx'. Did you mean 'matrix'?"),
        ("[none, alie]", "[none, alie", "small.yaml:12: not valid YAML: "),
        (
            "seeds: 2",
            "seeds: !!python/object/apply:os.getcwd []",
            "small.yaml:9: not valid YAML: expected no tags; got tag:yaml.org,2002:python/object/apply:os.getcwd",
        ),
        (
            "task: {data: digits",
            "task: {data: {nme: digits}",
            "small.yaml:3: task.data: expected a mapping with a `name` from `fedguard list data`",
        ),
    ],
)
def test_messages_name_the_file_and_the_line(old, new, message):
    assert old in SUITE
    assert message in complaint(SUITE.replace(old, new, 1))


@pytest.mark.parametrize("seeds", ["1.5", "'3'", "0-4", "null", "true", "{a: 1}", "[]", "[1, 1]", "1" * 40, "-1"])
def test_seeds_say_what_they_may_be(seeds):
    said = complaint(SUITE.replace("seeds: 2", f"seeds: {seeds}", 1))
    assert "seeds: expected a number of seeds from 1 to 10,000, or a list of 1 to 10,000 different seeds; got " in said
    assert "'1" not in said  # a long number is no text


def test_a_mapping_of_python_is_read_as_a_file_is(tmp_path):
    circle = {"task": {}}
    circle["task"]["data"] = circle
    for suite, said in (
        (circle, "task.data.task: expected values nested at most 32 deep; got more"),
        ({"training": {3: 4}}, "training: expected words as keys; got 3"),
        ({"training": {"rounds": 10**5000}}, "got a number of 16,610 bits"),
        ({"seeds": list(range(10_001))}, "a list of 1 to 10,000 different seeds; got [0, 1, 2"),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)) as caught:
            lay_out(suite)
        assert "\n" not in str(caught.value)
    numpy = {"seeds": [np.int64(7)], "training": {"rounds": np.int32(2), "lr": np.float32(0.5)}}
    assert lay_out(numpy)[1].suite == lay_out({"seeds": [7], "training": {"rounds": 2, "lr": 0.5}, "name": lay_out(numpy)[1].suite.name})[1].suite  # fmt: skip


@pytest.mark.parametrize(
    ("suite", "said"),
    [
        ({"attack": 3}, "attack: expected text or a mapping; got 3."),
        ({"plugins": "x"}, "plugins: expected a list; got 'x'."),
        ({"attack": "ALIE"}, "attack: unknown attack 'ALIE'. Did you mean 'alie'?"),
        ({"attack": "alie(z=1, z=2)"}, "attack: alie: expected each parameter once; z is given twice. Leave out one."),
        ({"attack": {"z": 1}}, "attack: expected a mapping with a `name` from `fedguard list attack`; got {'z': 1}."),
        ({"gate": {"audit": 3}}, "gate.audit: expected true or false; got 3."),
        ({"clients": {"assumed_f": "x"}}, "expected 'unknown' or a number of clients (4) or a fraction of them (0.2); got 'x'."),
        ({"clients": {"schedule": [{}]}}, "clients.schedule[0].clients: expected a value, since it has no default; got nothing."),
        ({"tuning": {"attacks": ["a"], "seeds": [], "budget": 1}}, "tuning.seeds: expected at least 1 value; got []."),
    ],
)  # fmt: skip
def test_what_was_expected_is_in_our_words(suite, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        lay_out(suite)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_document(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="expected a text file in UTF-8"):
        read_document(tmp_path / "binary.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="expected a mapping of keys"):
        read_document(tmp_path / "list.yaml")
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(ConfigError, match="expected a mapping of keys such as `task:` and `matrix:`; got nothing"):
        read_document(tmp_path / "empty.yaml")


def test_a_plugin_module_beside_the_suite_is_found(tmp_path, monkeypatch):
    (tmp_path / "beside_the_suite.py").write_text(
        "from fedguard.contracts import WeightRule, Sight\nimport torch\n"
        "class First(WeightRule):\n    'The first update.'\n    name = 'first_of_all'\n    needs = (Sight.EACH_UPDATE,)\n"
        "    def weights(self, gram, context):\n        return torch.eye(gram.n)[0].double()\n"
    )
    (tmp_path / "suite.yaml").write_text("plugins: [beside_the_suite]\ndefense: first_of_all\n")
    _, laid = lay_out(tmp_path / "suite.yaml")
    assert str(laid.cells[-1].pipeline) == "first_of_all"


RULE = """
import torch
from fedguard.contracts import Sight, WeightRule
from beside_both import ROW
from tests.root import ROOT

class Mine(WeightRule):
    'The update of one row.'
    name = 'mine'
    needs = (Sight.EACH_UPDATE,)

    def weights(self, gram, context):
        return torch.eye(gram.n)[ROW].double()
"""


def test_two_suites_with_modules_of_one_name_live_in_one_process(tmp_path):
    before, laid = list(sys.path), {}
    for row, name in enumerate(("one", "other")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rules_of_mine.py").write_text(RULE)
        (folder / "beside_both.py").write_text(f"ROW = {row}\ndef data():\n    return {name!r}\n")
        (folder / "suite.yaml").write_text(
            "plugins: [rules_of_mine]\ndefense: mine\ntask: {data: 'beside_both:data', model: 'beside_both:data'}\n"
        )
        laid[name] = lay_out(folder / "suite.yaml")[1]
    assert sys.path == before
    assert "mine" not in load_registry().names("defense")
    updates = np.eye(3, dtype=np.float32)
    for row, name in enumerate(laid):
        cell = laid[name].cells[-1]
        assert fg.aggregate(cell.pipeline, updates, f=0).tolist() == np.eye(3)[row].tolist()
        assert cell.data.target.call_function("data") == name
        again = build_cell(CellConfig.model_validate(cell.canonical), laid[name].known)
        assert again.id == cell.id and type(again.pipeline.rule) is type(cell.pipeline.rule)


def test_a_module_that_has_changed_is_read_again(tmp_path):
    (tmp_path / "changing.py").write_text("def data():\n    return 1\n")
    (tmp_path / "suite.yaml").write_text("task: {data: 'changing:data'}\n")
    data = lay_out(tmp_path / "suite.yaml")[1].cells[-1].data
    assert data.target.call_function("data") == 1
    (tmp_path / "changing.py").write_text("def data():\n    return 2  # another size\n")
    assert data.target.call_function("data") == 2


def test_yaml_words_and_pythons_own_are_alike_within_a_call() -> None:
    """Also within lists, and as words in quotes they stay words."""
    for told, meant in (("null", None), ("None", None), ("true", True), ("True", True), ("false", False)):
        assert split_spec("attack", f"any(a={told}, b=[1, {told}], c='{told}')")[1] == {
            "a": meant,
            "b": [1, meant],
            "c": told,
        }
    with pytest.raises(ConfigError, match="expected a number, a word in quotes or a list for a; got 'nil'"):
        split_spec("attack", "any(a=nil)")


def test_a_parameter_that_is_null_and_is_not_so_by_default_is_null_in_the_worker_too() -> None:
    """A worker builds the cell of what its settings spell out: another one would be trained, and stored in this one's place."""
    tried = []
    for _, cls in load_registry().classes(["algorithm"]):
        optional = [
            field.name
            for field in cls.fields()
            if type(None) in get_args(cls.types()[field.name]) and field.default is not None
        ]
        for parameter in optional:
            training = Training(algorithm={"name": cls.name, parameter: None})
            algorithm, _ = build_algorithm(training, load_registry(), {})
            stored = json.loads(json.dumps(settings(algorithm, training)))
            assert getattr(algorithm, parameter) is None
            assert build_algorithm(Training(**stored), load_registry(), {})[0] == algorithm
            tried.append((cls.name, parameter))
    assert ("vtrace", "rho") in tried and ("vtrace", "trace") in tried
