"""`fedguard secagg` and `fg.secure_sum`, as a person uses them; and the documents that speak of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.errors import ConfigError, InputError, UnknownName
from fedguard.secagg.errors import TooFewSurvivors
from tests.forked import fedguard

ROOT = Path(__file__).parent.parent.parent


def secagg(*arguments: str, code: int = 0) -> str:
    done = fedguard("secagg", *arguments, cwd=Path.cwd(), columns=200)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_without_a_command_it_tells_what_there_is():
    said = secagg()
    assert all(word in said for word in ("params", "demo", "attack"))


def test_params_prints_what_a_session_needs():
    found = json.loads(secagg("params", "-n", "1000", "--grinding", "0", "--json"))
    assert (found["degree"], found["threshold"], found["quorum"]) == ("48", "27", "551")
    assert "neighbors of each client, all others" in secagg("params", "-n", "20", "--gamma", "0.2")
    assert "semi-honest" in secagg("params", "-n", "20", "--semi-honest")
    assert "at least 3 clients" in secagg("params", "-n", "2", code=2)


def test_demo_shows_what_the_server_sees_and_learns():
    said = secagg("demo", "-n", "6", "--drop", "masked_input:3", "--drop", "unmask:1")
    first = " ".join(said.split())  # whatever the width of the terminal
    assert first.startswith("The server learns a sum and no single input: 17, 170, 1700 over clients 0, 1, 2, 4, 5")
    pattern = r"client (\d) +(\d+ \d+ \d+) +([0-9a-f]{8} [0-9a-f]{8} [0-9a-f]{8})"
    masked = re.findall(pattern, said)
    assert [row[:2] for row in masked] == [(str(i), f"{i + 1} {i + 1}0 {i + 1}00") for i in (0, 1, 2, 4, 5)]
    assert len({row[2] for row in masked}) == 5  # no two clients look alike
    again = re.findall(pattern, secagg("demo", "-n", "6"))
    assert not {row[2] for row in again} & {row[2] for row in masked}
    assert "TooFewSurvivors" in secagg("demo", "-n", "4", "--drop", "share_keys:0", "--drop", "share_keys:1", code=2)
    assert "expected a step and a client" in secagg("demo", "--drop", "unmask", code=2)
    assert "Did you mean 'unmask'" in secagg("demo", "--drop", "unmusk:1", code=2)


def test_attack_tells_the_story_and_who_stopped_it():
    said = secagg("attack", "second_request")
    assert said.startswith("second_request against ours: defeated") and "AlreadyAnswered" in said
    weak = json.loads(secagg("attack", "second_request", "--weak", "--json"))[0]
    assert weak["verdict"] == "succeeded" and "promised are sums of" in weak["learned"]
    assert "has no planted weakness" in secagg("attack", "sum_leakage", "--weak", code=2)
    assert "Did you mean 'sybils'" in secagg("attack", "sybil", code=2)


def told_verdicts():
    text = (ROOT / "docs" / "secagg_attacks.md").read_text()
    return dict(re.findall(r"^\| \d+ \| `(\w+)` \| \w+ \| (\w+) \|", text, re.MULTILINE))


def test_the_document_names_every_attack_and_its_end():
    told = told_verdicts()
    assert set(told) == set(fg.names("protocol")) and set(told.values()) == {"defeated", "limit"}


@pytest.mark.slow
def test_the_document_tells_the_verdict_of_every_attack():
    told = told_verdicts()
    found = {one["attack"]: one["verdict"] for one in json.loads(secagg("attack", "all", "--json"))}
    assert told == found and set(found) == set(fg.names("protocol"))
    assert set(found.values()) == {"defeated", "limit"}


@pytest.mark.parametrize("n", [50, 100, 500, 1000])
def test_the_document_tells_the_parameters(n):
    from fedguard.secagg.parameters import choose

    text, found = (ROOT / "docs" / "secagg_parameters.md").read_text(), choose(n, 0.1, 0.1)
    row = f"| {n} | {found.degree} | {found.threshold} | {found.quorum} | {found.anonymity} |"
    assert row in text


def test_secure_sum_of_floats_stays_within_its_rounding_error():
    inputs = np.random.default_rng(0).normal(size=(12, 400))
    result = fg.secure_sum(inputs, drop={"masked_input": [3], "unmask": [5]})
    assert result.survivors == (0, 1, 2, *range(4, 12)) and result.weight == 11
    off = np.abs(result.sum - inputs[list(result.survivors)].sum(0))
    assert off.max() <= result.rounding.worst and off.std() < 2 * result.rounding.largest
    assert result.mean == pytest.approx(inputs[list(result.survivors)].mean(0), abs=1e-6)
    assert result.bytes_sent == sum(event.size for event in result.transcript if event.sender is not None)
    assert {event.kind for event in result.transcript} >= {"ADVERTISE", "SHARE", "MASKED", "ATTEST", "UNMASK"}


def test_secure_sum_of_whole_numbers_is_exact():
    inputs = np.random.default_rng(0).integers(-1000, 1000, (7, 50))
    assert (fg.secure_sum(inputs).sum == inputs.sum(0)).all()
    assert fg.secure_sum([[1, 2], [3, 4], [5, -6]]).sum.tolist() == [9, 0]


def test_secure_sum_with_weights_rotation_and_torch():
    inputs, weights = torch.randn(5, 64, generator=torch.Generator().manual_seed(0)), [1, 2, 3, 0, 10]
    result = fg.secure_sum(inputs, weights, rotate=True)
    expected = (inputs.double() * torch.tensor(weights)[:, None]).sum(0).numpy()
    assert result.weight == 16 and np.abs(result.sum - expected).max() < result.rounding.worst


def test_secure_sum_cuts_at_the_clip_that_is_given():
    result = fg.secure_sum(np.array([[5.0, -5.0, 0.5]] * 3), clip=1.0)
    assert result.sum == pytest.approx([3, -3, 1.5], abs=1e-5)


def test_secure_sum_says_what_is_wrong():
    inputs = np.zeros((4, 2))
    with pytest.raises(TooFewSurvivors):
        fg.secure_sum(inputs, drop={"masked_input": [0, 1]})
    with pytest.raises(UnknownName, match="masked_input"):
        fg.secure_sum(inputs, drop={"masked": [0]})
    with pytest.raises(ConfigError, match="at least 3 clients"):
        fg.secure_sum(inputs[:2])
    for bad in (inputs[0], inputs * np.nan, np.array([["a"]])):
        with pytest.raises(InputError):
            fg.secure_sum(bad)
    for weights in ([1, 1], [1, 1, 1, -1], [0.5] * 4):
        with pytest.raises(InputError, match="whole numbers"):
            fg.secure_sum(inputs, weights)
    with pytest.raises(ConfigError, match="Pass floats"):
        fg.secure_sum(inputs.astype(int), clip=3.0)
