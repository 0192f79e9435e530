"""A kind of noise is one class: a plug-in's runs in a suite, stands in the threat card, is counted, refused and audited."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedguard as fg
from fedguard import cli
from fedguard.bench.running.protocol import noise_in_words
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from tests.pages import shown
from tests.root import ROOT

MODULE = shown("add_noise.md", "steady_noise.py")
SUITE = """
name: steady
plugins: [steady_noise]
seeds: 1
clients: {total: 12}
training: {rounds: 2}
protocol: {privacy: %s}
matrix: {defense: [mean, median]}
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Writes the module and a suite with some setting of ``protocol.privacy``."""
    monkeypatch.chdir(tmp_path)
    Path("steady_noise.py").write_text(MODULE)

    def written(privacy="{kind: steady, z: 3}"):
        Path("suite.yaml").write_text(SUITE % privacy)
        return "suite.yaml"

    return written


def test_a_plug_ins_noise_runs_is_told_of_and_is_counted(suite):
    run = fg.run(suite(), jobs=1)
    ran, refused = sorted(run.records.values(), key=lambda record: str(record["status"]))
    card, privacy = ran["threat_card"], ran["result"]["privacy"]
    assert (card["privacy"], card["noise"]) == ("steady", "server")
    assert card["epsilon_note"] == "a trusted server adds steady noise; what it proves is in the result"
    assert ran["config"]["protocol"]["privacy"] == {"kind": "steady", "clip": 0.5, "z": 3, "delta": 1e-3}
    # two Gaussian releases at z = 3: divergences of a / 9, at the best of many orders
    orders = np.arange(1.1, 60, 0.1)
    counted = min(orders / 9 + np.log((orders - 1) / orders) - (math.log(1e-3) + np.log(orders)) / (orders - 1))
    assert privacy["epsilon"] == card["epsilon"] == pytest.approx(counted, rel=0.01)
    assert (privacy["kind"], privacy["units"], privacy["rounds"], privacy["accountant"][:3]) == ("steady", 12, 2, "RDP")
    assert "examples are prepared by" in privacy["assumptions"][-1]
    assert "steady_noise" in ran["environment"]["code"]
    assert (refused["status"], refused["reason"]) == ("refused", "steady noise is made for the mean. Use mean.")


def test_a_plug_ins_noise_is_audited(suite):
    (found,) = fg.audit(suite(), canaries=200)
    assert (found.audit.subject, found.audit.verdict) == ("steady noise", "consistent")
    Path("steady_noise.py").write_text(MODULE.replace("return self.z * self.clip", "return 0.2 * self.z * self.clip"))
    (weak,) = fg.audit("suite.yaml", canaries=200)
    assert weak.audit.verdict == "violated"


def test_a_plug_ins_noise_is_checked_named_and_told_of(suite):
    _, laid_out = fg.api.lay_out(suite("steady(z=4)"))
    cell = laid_out.positions[0][1]
    assert cell.trusted_server and cell.noise.z == 4
    assert noise_in_words(cell)[0].startswith("Privacy, steady: z = 4 among 12 clients. Examples are prepared by")
    with pytest.raises(ConfigError, match=r"suite.yaml:\d+: protocol: privacy: steady noise takes all clients"):
        fg.api.lay_out(suite(), ["clients.per_round=6"])
    with pytest.raises(ConfigError, match="steady: z: expected more than 0; got -1"):
        fg.api.lay_out(suite("{kind: steady, z: -1}"))
    listed = CliRunner().invoke(cli.app, ["list", "noise", "--plugin", "steady_noise", "--json"])
    assert {one["name"] for one in json.loads(listed.stdout)} == {"none", "record", "client", "distributed", "steady"}


def test_no_file_but_its_own_names_a_kind_of_noise():
    """Whoever deals with noise deals with any; that there may be none is all that others know."""
    kinds = {cls.__name__ for _, cls in load_registry().classes(["noise"])} - {"NoNoise"}
    files = [*(ROOT / "fedguard").rglob("*.py"), *(ROOT / "app").rglob("*.py"), *(ROOT / "attacks").rglob("*.py")]
    assert len(kinds) >= 3 and len(files) > 300
    for file in files:
        text = file.read_text()
        if file.parent != ROOT / "fedguard" / "privacy" / "kinds":
            assert not kinds & set(re.findall(r"\w+", text)), file
        assert not re.search(r"isinstance\([^()]*NoNoise|(?<!self\.)(noise|privacy)\.name [!=]=", text), file
