"""The GitHub Action: what it may hold, and its scripts run as a runner would run them."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.forked import done as ended
from tests.gate.installed import ROOT, baseline

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
SCRIPTS = {name: step for name, step in STEPS.items() if "run" in step}

SUITE = """
name: tiny
clients: {total: 10, malicious: 2}
training: {rounds: 4, batch_size: 32, lr: 0.1}
seeds: 2
gate: {confirm: 3, audit: false}
matrix: {attack: [none, sign_flip], defense: [mean]}
"""


def test_no_expression_stands_in_a_script_where_it_would_be_run():
    assert set(SCRIPTS) == {"Name the cache", "Install FedGuard", "Run the suite", "Gate", "Report"}
    for name, step in SCRIPTS.items():
        assert "${{" not in step["run"], name
        assert step["shell"] == "bash"
        assert step["run"].startswith("set -euo pipefail\n"), name


def test_every_input_is_used_and_said_and_every_step_of_others_is_pinned():
    text = (ROOT / "action.yml").read_text()
    for name, told in ACTION["inputs"].items():
        assert f"inputs.{name} " in text, name
        assert told["description"].endswith("."), name
        assert told.get("required") or "default" in told, name
    for step in STEPS.values():
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]), step["uses"]
    for output in ACTION["outputs"].values():
        name = re.fullmatch(r"\$\{\{ steps\.gate\.outputs\.([a-z-]+) \}\}", output["value"])[1]
        assert name in STEPS["Gate"]["run"]


#: ``fedguard``, as a step's script calls it: it asks the tests' own process for a copy that runs the command and writes to its files.
ASKS = """
import json, os, socket, sys
tests = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(tests, [json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()], [1, 2])
sys.exit(tests.recv(1)[0])
"""


class Runner:
    """A runner: folders, files that the steps write to, and what stands on the path."""

    def __init__(self, folder: Path, temp: Path | None = None) -> None:
        self.folder, self.temp = folder, temp or folder / "temp"
        self.output, self.summary, self.bin = folder / "output", folder / "summary", folder / "bin"
        self.bin.mkdir(parents=True)
        self.temp.mkdir(exist_ok=True)
        (folder / "asks.py").write_text(ASKS)
        self.shim("fedguard", f'exec "{sys.executable}" -IS "{folder}/asks.py" "$TESTS" "$@"')

    def shim(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/bash\n{script}\n")
        (self.bin / name).chmod(0o755)

    def run(self, name: str, /, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step's script, its environment filled in as GitHub does."""
        given = {key: str(told.get("default", "")) for key, told in ACTION["inputs"].items()} | inputs

        def filled(found: re.Match[str]) -> str:
            known = {"runner.temp": str(self.temp), "github.action_path": str(ROOT)}
            return known.get(found[1]) or given[found[1].removeprefix("inputs.")]

        step = SCRIPTS[name]
        variables = {key: re.sub(r"\$\{\{ (\S+) \}\}", filled, value) for key, value in step.get("env", {}).items()}
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("FEDGUARD_", "PYTEST_"))}
        environment |= {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(self.output),
            "OMP_NUM_THREADS": "1",
        }
        environment |= {"GITHUB_STEP_SUMMARY": str(self.summary), "RUNNER_TEMP": str(self.temp), **variables}
        script = self.folder / "script.sh"
        script.write_text(step["run"])
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        tests, asks = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tests, asks, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            where = {
                "cwd": self.folder,
                "env": environment | {"TESTS": str(asks.fileno())},
                "pass_fds": [asks.fileno()],
            }
            process = subprocess.Popen(command, stdout=out, stderr=err, **where)
            while process.poll() is None:
                if select.select([tests], [], [], 0.01)[0]:
                    _answer(tests)
            for stream in (out, err):
                stream.seek(0)
            return subprocess.CompletedProcess(command, process.returncode, out.read(), err.read())

    @property
    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())


def _answer(tests: socket.socket) -> None:
    """Run the command that a script asks for, and say how it ended."""
    said, files, _, _ = socket.recv_fds(tests, 2**20, 2)
    arguments, folder, environment = json.loads(said)
    code = ended(["fedguard", *arguments], Path(folder), environment, *files)
    for file in files:
        os.close(file)
    tests.send(bytes([code]))


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Runner:
    """A runner after the step that runs the suite; beside it a baseline of the same suite."""
    runner = Runner(tmp_path_factory.mktemp("job"))
    (runner.folder / "suite.yaml").write_text(SUITE)
    baseline(runner.folder, "tiny")
    done = runner.run("Run the suite", suite="suite.yaml", jobs="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return runner


@pytest.mark.slow
def test_a_run_as_good_as_its_baseline_passes_with_summary_report_and_outputs(ran):
    for step in ("Gate", "Report"):
        done = ran.run(step, baseline="baseline.json", strict="true")
        assert done.returncode == 0, f"{step}: {done.stdout}{done.stderr}"
    assert ran.outputs == {"verdict": "passed", "exit-code": "0"}
    assert "Passed: " in ran.summary.read_text()
    kept = ran.temp / "fedguard"
    assert json.loads((kept / "gate.json").read_text())["strict"] is True
    assert ElementTree.parse(kept / "gate.xml").find(".//testcase") is not None
    assert "<html" in (kept / "report.html").read_text()
    assert len(list((kept / "runs" / "gate" / "cells").rglob("seed-*.json"))) == 6


@pytest.mark.slow
def test_a_planted_regression_ends_with_the_gates_code_and_a_summary(ran, tmp_path):
    """The baseline is made better by half than the run."""
    runner = Runner(tmp_path, ran.temp)
    content = json.loads((ran.folder / "baseline.json").read_text())
    for cell in content["snapshot"]["cells"].values():
        values = cell["values"]["final_accuracy"]
        cell["values"]["final_accuracy"] = {seed: 1.5 * value for seed, value in values.items()}
    (tmp_path / "better.json").write_text(json.dumps(content))
    gate = runner.run("Gate", baseline="better.json", jobs="1")
    assert gate.returncode == 3, gate.stdout + gate.stderr
    assert runner.outputs == {"verdict": "regressed", "exit-code": "3"}
    assert "sign_flip against mean" in runner.summary.read_text().replace("\\", "")


@pytest.mark.slow
def test_a_suite_that_cannot_run_ends_the_job_and_a_failed_trial_is_left_to_the_gate(tmp_path):
    runner = Runner(tmp_path)
    assert runner.run("Run the suite", suite="none.yaml").returncode == 2
    for code, ends in ((0, 0), (4, 0), (1, 1), (130, 130)):
        runner.shim("fedguard", f"exit {code}")
        assert runner.run("Run the suite", suite="suite.yaml").returncode == ends


@pytest.mark.parametrize(
    ("code", "verdict"), [(0, "passed"), (3, "regressed"), (4, "cannot-judge"), (1, "error"), (130, "error")]
)
def test_the_gates_code_is_the_steps_and_has_its_word(tmp_path, code, verdict):
    runner = Runner(tmp_path)
    runner.shim("fedguard", f'printf "%s\n" "$@" > said; exit {code}')
    assert runner.run("Gate", baseline="baseline.json", name="tiny", strict="true").returncode == code
    assert runner.outputs == {"verdict": verdict, "exit-code": str(code)}
    said = (tmp_path / "said").read_text().split("\n")
    assert said[:3] == ["gate", "--baseline", "baseline.json"] and said[-5:] == [
        "--fail-on",
        "inconclusive",
        "--",
        "tiny",
        "",
    ]


HOSTILE = "x'; touch taken; $(touch taken) `touch taken` \"; touch taken #"


def test_inputs_are_words_and_never_commands(tmp_path):
    runner = Runner(tmp_path)
    for command in ("fedguard", "python"):
        runner.shim(command, f'printf "%s\\n" {command} "$@" >> said')
    inputs = dict.fromkeys(ACTION["inputs"], HOSTILE)
    for name in SCRIPTS:
        assert runner.run(name, **inputs).returncode == 0
    assert not (tmp_path / "taken").exists()
    said = (tmp_path / "said").read_text()
    assert f"run\n--store\n{tmp_path}/temp/fedguard/runs\n--name\n{HOSTILE}\n--jobs\n{HOSTILE}\n--\n{HOSTILE}\n" in said
    assert f"install\n--index-url\nhttps://download.pytorch.org/whl/cpu\n{HOSTILE}\n" in said


def test_it_installs_the_version_of_the_action_unless_told(tmp_path):
    runner = Runner(tmp_path)
    runner.shim("python", 'printf "%s " "$@" >> said; echo >> said')
    done = runner.run("Install FedGuard", **{"pip-arguments": "-r requirements.txt -e ."})
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text().splitlines()
    assert said[0] == "-m pip install --index-url https://download.pytorch.org/whl/cpu torch>=2.6 "
    assert said[1] == f"-m pip install {ROOT}[dashboard] -r requirements.txt -e . "
