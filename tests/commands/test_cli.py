"""The commands, as a person types them: in a process of their own, forked from this one where nothing depends on its start."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedguard.registry import KINDS
from tests import forked

SUITE = """\
name: tiny
clients: {total: 8, malicious: 2}
training: {rounds: 3}
seeds: 2
matrix:
  attack: [none, ipm(tau=5), model_replacement]
  defense: [mean, median, fltrust]
"""


def fedguard(*arguments: str, cwd: Path, code: int = 0, columns: int = 100) -> subprocess.CompletedProcess[str]:
    done = forked.fedguard(*arguments, cwd=cwd, columns=columns)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a suite that has been run."""
    path = tmp_path_factory.mktemp("work")
    (path / "tiny.yaml").write_text(SUITE)
    done = fedguard("run", "tiny.yaml", cwd=path)
    (path / "run.txt").write_text(done.stdout)
    return path


def test_run_says_what_it_does_and_what_comes_next(folder):
    said = (folder / "run.txt").read_text()
    assert "22 trials: 16 to run on" in said
    assert "12 of 18 trials, 6 refused" in said and "Before you quote this" in said
    assert "fedguard show tiny --metric worst_class_accuracy" in said
    assert "2 of 8 clients are malicious" in said


def test_what_comes_next_finds_the_run_in_another_store(folder, tmp_path):
    shutil.copytree(folder / "runs", tmp_path / "my store")
    shutil.copy(folder / "tiny.yaml", tmp_path)
    said = fedguard("run", "tiny.yaml", "--store", "my store", cwd=tmp_path).stdout
    shown = [shlex.split(line, comments=True)[1:] for line in said.partition("Next:")[2].splitlines() if line.strip()]
    assert [words[0] for words in shown[:3]] == ["show", "lint", "export"]
    for words in shown[:3]:
        fedguard(*words, cwd=tmp_path)


def test_show(folder):
    said = fedguard("show", "tiny", cwd=folder).stdout
    lines = [line.split() for line in said.splitlines() if line.strip()]
    assert lines[0][:5] == ["Two", "seeds", "do", "not", "rank."]  # the answer first
    assert len(lines) <= 45 and lines[-1][0] == "More:"
    assert fedguard("show", str(folder / "runs" / "tiny"), cwd=folder).stdout == said
    whole = " ".join(fedguard("show", "tiny", "--all", cwd=folder).stdout.split())
    assert (
        "none, ipm(tau=5), model_replacement against fltrust (6 trials): fltrust needs each client's update and a clean data set"
        in whole
    )
    said = fedguard("show", "tiny", "--matrix", cwd=folder).stdout
    assert "Final accuracy in %\nMean of 2 seeds: no interval worth the name" in said
    assert "Backdoor success above that of a clean model in %" in said
    lines = [line.split() for line in said.splitlines() if line.strip()]
    rows = lines[lines.index(["attack", "mean", "median", "fltrust"]) + 1 :]
    assert [row[0] for row in rows[1:4]] == ["none", "ipm(tau=5)", "model_replacement"]
    figure = fedguard("show", "tiny", "--metric", "accuracy_drop", cwd=folder).stdout
    assert "Accuracy lost under the attack in %" in figure and "Final accuracy" not in figure
    rows = json.loads(fedguard("show", "tiny", "--json", cwd=folder).stdout)
    assert len(rows) == 18
    assert rows[0]["attack"] == "none"


def test_narrow_terminals_get_several_tables(folder):
    said = fedguard("show", "tiny", "--metric", "final_accuracy", cwd=folder, columns=44).stdout
    assert max(map(len, said.splitlines())) <= 44
    assert len(re.findall(r"^ ?worst  ", said, re.MULTILINE)) == 3
    assert "…" not in said


def test_picture(folder):
    fedguard("show", "tiny", "--to", "matrix.svg", cwd=folder)
    picture = (folder / "matrix.svg").read_text()
    assert picture.startswith("<svg")
    assert "model_replacement" in picture
    assert "url(http" not in picture  # looking at it makes no request


def test_export(folder):
    fedguard("export", "tiny", "--to", "tiny.csv", "--to", "tiny.json", "--to", "tiny.parquet", cwd=folder)
    with (folder / "tiny.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(json.loads((folder / "tiny.json").read_text())) == 18
    assert {row["status"] for row in rows} == {"ok", "refused"}
    import pandas

    assert len(pandas.read_parquet(folder / "tiny.parquet")) == 18


def test_check_says_what_is_legal_and_how_long_it_takes(folder):
    said = " ".join(fedguard("check", "tiny.yaml", cwd=folder).stdout.split())
    assert (
        "tiny: 9 positions of the matrix, 2 more cells to compare with (2 in which the malicious clients send nothing), 2 seeds: 16 "
        "trials to run, 6 refused." in said
    )
    assert "Clients: 8 of 8 in a round (fixed), 2 malicious (25 %), and the rules assume f = 2." in said
    assert "none, ipm(tau=5), model_replacement against fltrust (3 cells): fltrust needs" in said
    assert "About" in said and "workers, from a few rounds measured now." in said
    said = fedguard(
        "check", "tiny.yaml", "--set", "matrix.defense=[krum]", "--set", "clients.malicious=3", cwd=folder
    ).stdout
    assert "krum needs n >= 2f + 3, with f = 3: 9 updates; got n = 8." in said.replace("\n", " ")
    masked = ["--set", "protocol.secure_aggregation=full"]
    said = fedguard("check", "tiny.yaml", *masked, cwd=folder).stdout.replace("\n", " ")
    assert "8 trials to run, 12 refused." in said
    assert "Secure aggregation, full: The server sees one sum of all updates" in said
    fedguard("check", "tiny.yaml", *masked, "--set", "matrix.defense=[median]", cwd=folder, code=2)


def test_dry_run(folder):
    assert "0 of 22 trials would run." in fedguard("run", "tiny.yaml", "--dry-run", cwd=folder).stdout
    said = fedguard("run", "tiny.yaml", "--dry-run", "--fresh", cwd=folder).stdout
    assert "16 of 22 trials would run." in said
    assert "seed 1  ipm(tau=5) against median" in said


def test_list(folder):
    assert "trimmed_mean" in fedguard("list", "defenses", cwd=folder).stdout
    listed = json.loads(fedguard("list", "--json", cwd=folder).stdout)
    assert {entry["kind"] for entry in listed} == set(KINDS)
    for entry in listed:
        assert {"name", "kind", "needs", "source", "summary", "parameters"} <= set(entry)
    krum = next(entry for entry in listed if entry["name"] == "krum")
    assert krum["needs"] == [["each_update"], ["group_sums"]]


@pytest.mark.parametrize("name", ["alie", "trimmed_mean", "digits", "pixel_patch", "server", "dirichlet", "lenet5"])
def test_explain(folder, name):
    said = fedguard("explain", name, cwd=folder).stdout
    assert said.startswith(name)
    assert "source" in said


def test_explain_tells_what_a_base_class_brings(folder):
    said = " ".join(fedguard("explain", "sgp", cwd=folder).stdout.split())
    assert "weight: k of W_k = k W + (1 - k) I." in said and "graph_seed: seed of this draw." in said


def test_init_check_run(tmp_path):
    fedguard("init", cwd=tmp_path)
    fedguard("check", "suite.yaml", "--set", "seeds=1", "--set", "training.rounds=1", cwd=tmp_path)
    again = fedguard("init", cwd=tmp_path, code=2)
    assert "suite.yaml is there already" in again.stderr
    fedguard("init", "--force", cwd=tmp_path)
    assert "cannot be written: No such file" in fedguard("init", "no/such/folder.yaml", cwd=tmp_path, code=2).stderr


def test_doctor(tmp_path):
    said = fedguard("doctor", cwd=tmp_path).stdout
    assert "BAD" not in said
    assert "worker process: starts" in said
    assert "torch: 2." in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument 'SUITE'. (See `fedguard run --help`.)"),
        (["run", "none.yaml"], "none.yaml: cannot be read: No such file or directory."),
        (["runn"], "No such command 'runn'."),
        (["run", "tiny.yaml", "--jbos", "2"], "No such option: --jbos"),
        (["run", "tiny.yaml", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["run", "tiny.yaml", "--set", "training.lrr=1"], "--set training.lrr: unknown key 'lrr'. Did you mean 'lr'?"),
        (["show", "none"], "run 'none': not found in runs. Runs there: tiny."),
        (["show", "tiny", "--metric", "acc"], "unknown metric 'acc'."),
        (
            ["export", "tiny"],
            "export: expected --to FILE (.csv, .json or .parquet), --json, --mlflow FILE, --tensorboard FOLDER or --wandb FOLDER; got",
        ),
        (
            ["export", "tiny", "--to", "no/folder/x.csv"],
            "no/folder/x.csv: cannot be written: No such file or directory.",
        ),
        (["list", "attak"], "unknown kind 'attak'. Did you mean 'attack'"),
        (["explain", "trimed_mean"], "unknown name 'trimed_mean'. Did you mean 'trimmed_mean'"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(folder, arguments, message):
    done = fedguard(*arguments, cwd=folder, code=2)
    assert message in done.stderr
    assert done.stderr.startswith("fedguard: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_without_permission(tmp_path):
    (tmp_path / "tiny.yaml").write_text(SUITE)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs").chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert "cannot be written: Permission denied" in fedguard("run", "tiny.yaml", cwd=tmp_path, code=2).stderr


def test_a_store_that_is_a_file(tmp_path):
    (tmp_path / "tiny.yaml").write_text(SUITE)
    (tmp_path / "runs").write_text("")
    assert "runs/tiny: cannot be written: Not a directory." in fedguard("run", "tiny.yaml", cwd=tmp_path, code=2).stderr


def test_failed_trials_give_exit_4(tmp_path):
    (tmp_path / "raises.py").write_text(
        "from fedguard.contracts import PoisonAttack, Sight\nclass Raises(PoisonAttack):\n    'Raises.'\n    name = 'raises'\n"
        "    needs = (Sight.NOTHING,)\n    def craft(self, view):\n        raise RuntimeError('on purpose')\n"
    )
    (tmp_path / "suite.yaml").write_text(
        "plugins: [raises]\nattack: raises\nseeds: 1\nclients: {malicious: 1}\ntraining: {rounds: 1}\n"
    )
    done = fedguard("run", "suite.yaml", cwd=tmp_path, code=4)
    assert "RuntimeError: on purpose" in done.stdout
    assert "Trials failed." in done.stdout


def test_a_fault_of_ours_leaves_a_traceback_in_a_log(tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("fedguard.bench.explain.catalogue.Explanation", broken)
    done = fedguard("explain", "krum", cwd=tmp_path, code=1)
    assert "a fault of FedGuard, not yours: ZeroDivisionError: planted" in done.stderr
    (log,) = tmp_path.glob("fedguard-crash-*.log")
    assert "Traceback" in log.read_text()


def test_a_crash_in_a_folder_that_cannot_be_written_still_leaves_its_log(tmp_path, monkeypatch):
    here, elsewhere = tmp_path / "gone", tmp_path / "temporary"
    here.mkdir()
    elsewhere.mkdir()

    def broken(*_: object) -> None:
        shutil.rmtree(Path.cwd())
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("fedguard.bench.explain.catalogue.Explanation", broken)
    done = forked.fedguard("explain", "krum", cwd=here, TMPDIR=str(elsewhere))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (log,) = elsewhere.glob("fedguard-crash-*.log")
    assert f"Please report it with {log}." in " ".join(done.stderr.split())
    assert "ZeroDivisionError: planted" in log.read_text()


def test_a_name_does_not_lead_out_of_the_store(tmp_path):
    (tmp_path / "suite.yaml").write_text("name: small\ntraining: {rounds: 1}\n")
    for options in ([], ["--dry-run"]):
        done = fedguard("run", "suite.yaml", "--name", "../../x", *options, cwd=tmp_path, code=2)
        assert "--name: expected a folder name of letters, digits, '.', '_' and '-'; got '../../x'." in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["suite.yaml"]


def test_help_teaches_and_loads_no_torch(tmp_path):
    (tmp_path / "loaded.py").write_text(
        "import sys\nsys.argv = ['fedguard', '--help']\nimport fedguard\nfrom fedguard.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'scipy', 'opacus', 'streamlit', 'pandas'} & set(sys.modules)\n"
        "print('LOADED', sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "loaded.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "LOADED []" in done.stdout
    for word in ("run", "check", "list", "explain", "show", "export", "doctor", "init", "Start with"):
        assert word in done.stdout
    assert "fedguard 0." in fedguard("--version", cwd=tmp_path).stdout


def test_a_closed_pipe_is_no_fault(tmp_path, monkeypatch):
    """As in `fedguard list --json | head -1`."""
    monkeypatch.chdir(tmp_path)
    process = forked.Forked(["fedguard", "list", "--json"])
    with process.stdin, process.stderr as told:
        with process.stdout as pipe:
            first = pipe.readline()
        assert (first, told.read()) == ("[\n", "")
    process.wait()
    assert not list(tmp_path.glob("fedguard-crash-*"))
