"""What prepares the examples stands outside the noise: given, public, or refused beside an epsilon."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest
import torch

from fedguard.bench.running.card import threat_card
from fedguard.bench.running.check import _copies
from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.protocol import protocol_in_words
from fedguard.bench.running.trial import run_trial
from fedguard.bench.tuning.tune import Proposal
from fedguard.config import Document, build_cell, plan, read_suite
from fedguard.config.schema import CellConfig
from fedguard.contracts import DPSGD, Data, LocalPlan
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks import DATA
from fedguard.tasks.classification import Classification
from fedguard.tasks.data import forget
from tests.privacy.test_gaussian import exact_gaussian

CLIENTS, EACH = 10, 400
RECORD = {"kind": "record", "epsilon": 0.5, "sample_rate": 1.0}


def write(path, x, y, owner):
    """Train examples with their clients, and two for testing."""
    np.savez(path, x_train=x, y_train=y, client_train=owner, x_test=np.eye(2, x.shape[1]), y_test=np.arange(2))
    return str(path)


def neighbors(folder):
    """Two federations of 4,000 records; the second one has one more, far out, at the first client."""
    draw = np.random.default_rng(0)
    x, owner = draw.random((CLIENTS * EACH, 8)), np.repeat(np.arange(CLIENTS), EACH)
    y = (x[:, 0] + x[:, 1] > 1).astype(int)
    more = np.append(x, [[1e4] + [0.5] * 7], axis=0), np.append(y, 0), np.append(owner, 0)
    return write(folder / "without.npz", x, y, owner), write(folder / "with.npz", *more)


def cell(data, privacy=RECORD, **settings):
    training = {"algorithm": "fedsgd", "rounds": 1, "batch_size": EACH, "lr": 1.0}
    task = {"data": data, "partition": {"kind": "natural"}}
    return build_cell(
        CellConfig.model_validate(
            {
                "task": task,
                "clients": {"total": CLIENTS},
                "training": training,
                "protocol": {"privacy": privacy},
                **settings,
            }
        ),
        load_registry(),
    )


def shifts(files, noise, **parameters):
    """By how many standard deviations of its noise each client's first step moves when the record is added."""
    told = []
    for file in files:
        data = load_registry().build("data", {"name": "npz", "file": file, **parameters})
        model, natural = load_registry().build("model", "softmax"), load_registry().build("partition", "natural")
        task = Classification.deal(data, model, natural, CLIENTS, Rng(0))
        private = DPSGD(sample_rate=1.0, levels=((1.0, noise),))
        out = torch.empty(CLIENTS, task.dim)
        order = np.argsort([int(part.client[0]) for part in task.parts])
        step = LocalPlan(lr=1.0, batch_size=1, steps=1, private=private)
        task.local_updates(torch.zeros(task.dim), order.tolist(), step, Rng(1), out)
        told.append(out)
    return ((told[1] - told[0]).norm(dim=1) / noise).tolist()


def test_one_record_told_itself_through_the_mean_of_all_and_is_refused_now(tmp_path):
    """At q = 1 a step is a Gaussian mechanism, so the shifts give the epsilon that the updates really have, from below."""
    files, noise = neighbors(tmp_path), 8.6  # one step: epsilon = 0.5 at delta = 1e-5 if the sum moves by 1 C at most
    assert exact_gaussian(1 / noise, 1e-5) < 0.5

    moved = shifts(files, noise)
    assert exact_gaussian(math.hypot(*moved[1:]), 1e-5) > 2.16, "the old leak: standardised by all clients' records"
    (reason,) = cell({"name": "npz", "file": files[0]}).verdict.reasons
    assert "npz takes scale and range and classes from the clients' own records" in reason
    assert "Give value_range and classes, or public examples." in reason

    given = {"value_range": [0, 1e4], "classes": 2}
    first, *others = shifts(files, noise, **given)
    assert max(others) < 1e-4 and exact_gaussian(first, 1e-5) < 0.5
    kept = cell({"name": "npz", "file": files[1], **given})
    assert kept.verdict.reasons == () and refusals([kept], 0) == {}


@pytest.mark.parametrize(
    "privacy", [RECORD, {"kind": "client", "epsilon": 1.0}, {"kind": "distributed", "epsilon": 1.0}]
)
def test_every_kind_of_noise_is_refused_beside_statistics_of_records(privacy, tmp_path):
    mode = {"secure_aggregation": "full"} if privacy["kind"] == "distributed" else {}
    data = {"name": "npz", "file": neighbors(tmp_path)[0]}
    refused = cell(data, protocol={"privacy": privacy, **mode})
    assert [reason for reason in refused.verdict.reasons if "from the clients' own records" in reason]
    assert cell(data, "none").verdict.reasons == ()


# --- what is declared is true -----------------------------------------------------------------------------------------


def bytes_of(shape, values):
    head = b"\0\0\x08" + bytes([len(shape)]) + b"".join(int(n).to_bytes(4, "big") for n in shape)
    return head + np.asarray(values, np.uint8).tobytes()


def npz(folder, extreme):
    folder.mkdir()
    x = np.concatenate([np.linspace(0, 0.5, 40).reshape(10, 4), np.full((extreme, 4), 9.0)])
    return write(folder / "a.npz", x, np.concatenate([np.arange(10) % 2, np.full(extreme, 2)]), np.zeros(len(x)))


def table(folder, extreme):
    folder.mkdir()
    rows = [[i / 10, "ab"[i % 2], "yes" if i % 3 else "no"] for i in range(20)] + [[1e6, "c", "maybe"]] * (2 * extreme)
    for name, some in (("private", rows), ("public", [[0.0, "a", "no"], [2.0, "b", "yes"], [1.0, "c", "maybe"]])):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["a", "b", "y"], *some])
    return str(folder / "private.csv")


def idx(folder, extreme):
    folder.mkdir()
    for part, n in (("train", 6 + extreme), ("t10k", 2)):
        x, y = np.full((n, 2, 2), 20), np.arange(n) % 2
        x[6:], y[6:] = 255, 2
        (folder / f"{part}-images-idx3-ubyte").write_bytes(bytes_of(x.shape, x))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(bytes_of(y.shape, y))
    return str(folder)


def leaf(folder, extreme, x, y, odd):
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        more = extreme * (part == "train")
        data = {"x": x + [odd[0]] * more, "y": y + [odd[1]] * more}
        told = {"users": ["u"], "num_samples": [len(data["y"])], "user_data": {"u": data}}
        (folder / part / "a.json").write_text(json.dumps(told))
    return str(folder)


def text(folder, extreme):
    folder.mkdir()
    (folder / "a.txt").write_text("abcabcabcabcabc" * 4 + "\n\n" + "zzzzzzzzzz" * extreme)
    return str(folder / "a.txt")


#: A name, where its records are (with and without an extreme one more), and what makes its preparation no matter of records.
DECLARED = {
    "npz": ("npz", "file", npz, {"value_range": [0, 10], "classes": 3}),
    "npz, public": ("npz", "file", npz, {"public": "{beside}.npz"}),
    "table": ("table", "file", table, {"label": "y", "public": "{folder}/public.csv"}),
    "idx": ("idx", "folder", idx, {"classes": 3}),
    "leaf": (
        "leaf", "folder", lambda folder, more: leaf(folder, more, [[0.0, 0.5], [0.5, 0.1]] * 3, [0, 1] * 3, ([9.0, 9.0], 2)),
        {"value_range": [0, 10], "classes": 3},
    ),
    "leaf, texts": (
        "leaf", "folder", lambda folder, more: leaf(folder, more, ["ab", "ba"] * 3, ["a", "b"] * 3, ("zz", "z")),
        {"characters": "abcz"},
    ),
    "text": ("text", "file", text, {"characters": "abcz", "window": 3, "stride": 1}),
}  # fmt: skip


@pytest.mark.parametrize("case", DECLARED)
def test_one_record_more_changes_nothing_of_the_others(case, tmp_path):
    """Not where it is declared so; and where it is not, it does: so the test can fail."""
    name, key, write_with, declared = DECLARED[case]
    places = [write_with(tmp_path / str(extreme), extreme) for extreme in (0, 1)]
    np.savez(tmp_path / "beside.npz", x=[[0.0] * 4, [4.0] * 4, [2.0] * 4], y=[0, 1, 2])

    def prepared(place, parameters):
        told = {
            one: value.format(beside=tmp_path / "beside", folder=tmp_path / "0") if one == "public" else value
            for one, value in parameters.items()
        }
        data = load_registry().build("data", {"name": name, key: place, **told})
        found = data.load()
        rows = torch.cat([found.train.x.flatten(1), found.test.x.flatten(1)])
        labels = torch.cat([found.train.y, found.test.y])
        known = {(*row, label) for row, label in zip(rows.tolist(), labels.tolist(), strict=True)}
        return data.preparation.origin, known, (found.classes, found.value_range, found.shape)

    origin, before, shape = prepared(places[0], declared)
    _, after, same_shape = prepared(places[1], declared)
    assert origin in ("given", "public") and shape == same_shape
    assert before <= after and len(after - before) <= 12  # the windows of the paragraph that was added

    loose = {one: value for one, value in declared.items() if one in ("label", "window", "stride")}
    origin, before, shape = prepared(places[0], loose)
    _, after, other_shape = prepared(places[1], loose)
    assert origin == "records" and (shape, before & after) != (other_shape, before)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"classes": 2}, "expected labels among the classes 0, 1, two or more; got label 2"),
        ({"classes": ["a", "b", "c"]}, "expected labels among the classes a, b, c, two or more; got label 0"),
        ({"classes": 1}, "npz: classes: expected their number, or their names, two or more different ones; got 1"),
        ({"classes": ["a", "a"]}, "two or more different ones"),
        ({"public": "{beside}"}, r"expected inputs of the shape \[2\] that the public ones have; got \[4\]"),
    ],
)
def test_declared_classes_and_public_examples_that_do_not_fit_are_refused(tmp_path, parameters, said):
    file, beside = npz(tmp_path / "1", 1), tmp_path / "beside.npz"
    np.savez(beside, x=[[0.0, 1.0]] * 3, y=[0, 1, 2])
    told = {key: str(beside) if key == "public" else value for key, value in parameters.items()}
    with pytest.raises(ConfigError, match=said) as caught:
        load_registry().build("data", {"name": "npz", "file": file, **told}).load()
    assert "\n" not in str(caught.value)


def test_more_declared_classes_than_there_are_make_outputs_for_each(tmp_path):
    file = npz(tmp_path / "0", 0)
    found = load_registry().build("data", {"name": "npz", "file": file, "value_range": [0, 1], "classes": 7}).load()
    assert found.classes == 7 and found.train.y.unique().tolist() == [0, 1]


def test_every_source_says_what_prepares_its_examples():
    assert all(load_registry().get("data", name).preparation is not Data.preparation for name in DATA)


def test_a_source_that_says_nothing_is_taken_to_look_at_the_records():
    class Silent(Data):
        name = "silent"

        def load(self):
            raise AssertionError

    assert Silent().preparation.origin == "records" and "override Data.preparation" in Silent().preparation.remedy


def test_a_function_of_ones_own_is_taken_at_its_word_alone(tmp_path, monkeypatch):
    (tmp_path / "arrays_of_mine.py").write_text("def load():\n    return [[0.0], [1.0]] * 20, [0, 1] * 20\n")
    monkeypatch.syspath_prepend(tmp_path)
    mine = {"name": "function", "target": "arrays_of_mine:load"}
    assert "declare that: public: true" in " ".join(cell(mine).verdict.reasons)
    assert cell({**mine, "public": True, "value_range": [0, 1]}).verdict.reasons == ()
    with pytest.raises(
        ConfigError, match=r"arrays without a value_range are standardised by themselves. Give value_range"
    ):
        load_registry().build("data", {**mine, "public": True}).load()


@pytest.mark.parametrize("name", ["wine", "breast_cancer"])
def test_the_constants_of_the_built_in_sets_are_near_their_statistics(name):
    data = load_registry().build("data", name)
    found = data.load()
    x = torch.cat([found.train.x, found.test.x]).double()
    assert x.mean(0).abs().max() < 0.02 and (x.std(0) - 1).abs().max() < 0.01
    low, high = found.value_range
    assert low < float(x.min()) and float(x.max()) < high and data.preparation.origin == "given"


# --- what is said of it -----------------------------------------------------------------------------------------------


def test_card_check_and_record_say_what_prepares_the_examples():
    settings = {"clients": {"total": 4}, "task": {"data": "wine"}}
    private = cell("wine", {**RECORD, "epsilon": 3.0}, **settings)
    assert threat_card(private)["preparation"]["origin"] == "given"
    assert "Examples are prepared by constants for mean" in " ".join(protocol_in_words(private))
    record, _ = run_trial(private, 0, {})
    assert "examples are prepared by constants" in record["result"]["privacy"]["assumptions"][-1]
    assert threat_card(cell({"name": "table", "file": "a.csv", "label": "y"}, "none"))["preparation"] == {
        "origin": "records",
        "what": "scale, range, categories and classes",
    }


def test_check_and_epsilon_say_what_stands_at_several_clients(tmp_path):
    """One record three times, twice at one client; another at two clients; a third one differs in its label alone."""
    x, y = np.arange(40.0).reshape(20, 2) / 40, np.arange(20) % 2
    x[[5, 9, 14]], y[[5, 9, 14]] = x[5], y[5]
    x[[2, 16]], y[[2, 16]] = -0.0, 1
    x[7] = x[3]
    y[3], y[7] = 0, 1
    owner = np.arange(20) // 5  # 5 and 9 are of client 1, 14 of client 2; 2 of client 0, 16 of client 3
    file = write(tmp_path / "a.npz", x, y, owner)
    config = {"data": {"name": "npz", "file": file, "value_range": [0, 1], "classes": 2}, "partition": "natural"}

    def said(privacy):
        settings = {"task": config, "clients": {"total": 4}, "training": {"rounds": 1, "batch_size": 4}}
        one = cell(None, {"delta": 1e-2, "noise_multiplier": 2.0, **privacy}, **settings)
        record, _ = run_trial(one, 0, {})
        told = [line for line in record["result"]["privacy"]["assumptions"] if "stand there more than once" in line]
        return _copies(one), told

    (checked,), (told,) = said({"kind": "record", "sample_rate": 0.5})
    assert "of 20 train examples 5 stand there more than once, and of one there are 3" in told
    assert checked == told[0].upper() + told[1:] + "."
    checked, (told,) = said({"kind": "client"})
    assert "5 stand there more than once, and one is at 2 clients" in told and checked == []
    x[:], y[:] = np.arange(40.0).reshape(20, 2) / 40, np.arange(20) % 2
    write(tmp_path / "a.npz", x, y, owner)
    forget()
    assert said({"kind": "record", "sample_rate": 0.5}) == ([], [])


# --- tuning -----------------------------------------------------------------------------------------------------------

TUNED = {
    "seeds": 1,
    "protocol": {"privacy": {"kind": "client", "epsilon": 8.0}},
    "matrix": {"attack": ["none", "sign_flip"], "defense": ["mean"]},
    "tuning": {"attacks": ["ipm"], "seeds": [10000], "budget": 4},
}


def laid_out(data):
    document = Document(data)
    return document, plan(document, read_suite(document))


def test_tuning_on_the_clients_records_is_refused_beside_an_epsilon():
    with pytest.raises(
        ConfigError, match="chosen among trainings on the clients' records, and .*tuning.trained_on: public"
    ):
        laid_out(TUNED)
    laid_out({**TUNED, "tuning": {**TUNED["tuning"], "trained_on": "public"}})
    laid_out({**TUNED, "protocol": {}})


def test_no_tuning_is_begun_whose_trainings_no_epsilon_counts():
    untuned = {key: value for key, value in TUNED.items() if key != "tuning"}
    untuned["matrix"] = {"attack": ["none", "sign_flip", "ipm"], "defense": ["mean"]}
    with pytest.raises(ConfigError, match="each setting that is tried is one more training on the clients' records"):
        Proposal.of(*laid_out(untuned), 4, None, 1)
    assert Proposal.of(*laid_out({**untuned, "protocol": {}}), 4, None, 1).budget == 4
