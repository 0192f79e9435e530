"""Mistakes at the command line: each is one clear line and exit code 2, and nothing is written or ignored in silence."""

from __future__ import annotations

import json
import shutil

import pytest

import fedguard as fg
from fedguard.bench.running.manifest import choose_folder
from fedguard.commands.options import files_of
from fedguard.errors import ConfigError
from tests import forked
from tests.root import ROOT

OLD = ROOT / "tests" / "first_edition"


@pytest.fixture
def store(tmp_path):
    shutil.copytree(OLD, tmp_path / "runs" / "old")
    return tmp_path


def fails(*arguments, cwd):
    done = forked.fedguard(*arguments, cwd=cwd)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_show_prints_the_rows_of_the_metric_that_it_is_given(store):
    assert "unknown metric 'bananas'" in fails("show", "old", "--json", "--metric", "bananas", cwd=store)
    done = forked.fedguard("show", "old", "--json", "--metric", "harm", cwd=store)
    rows = json.loads(done.stdout)
    assert {"attack", "defense", "seed", "status", "harm"} <= rows[0].keys() and "final_accuracy" not in rows[0]


def test_a_metric_of_an_earlier_version_works_and_names_its_successor(store):
    done = forked.fedguard("show", "old", "--json", "--metric", "normalised_return", cwd=store)
    assert "normalized_return" in json.loads(done.stdout)[0]
    assert "--metric normalised_return is now --metric normalized_return" in done.stderr


def test_each_reason_to_fail_counts(store):
    done = forked.fedguard("lint", "old", "--fail-on", "flags", "--fail-on", "flags", cwd=store)
    assert done.returncode == 3
    assert "'bananas' is not one of" in fails("lint", "old", "--fail-on", "bananas", "--fail-on", "flags", cwd=store)


def test_no_suite_is_written_for_an_app_that_is_not_there(tmp_path):
    assert "nowhere/pyproject.toml: expected" in fails("flower", "check", "nowhere", "--to", "x.yaml", cwd=tmp_path)
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("secagg", "params", "--dropout", "2"), "dropout is a share of the clients, in [0, 1); got 2"),
        (("secagg", "params", "--dropout", "0.9"), "Use a dropout of at most"),
        (("kappa", "krum", "-f", "-1"), "'--malicious' / '-f': Input should be greater than or equal to 0"),
        (("kappa", "krum", "-n", "0"), "'--clients' / '-n': Input should be greater than or equal to 1"),
        (("show", "old", "--page", "bananas"), "Invalid value for '--page': 'bananas' is not one of"),
    ],
)
def test_a_message_names_the_option_and_speaks_its_words(arguments, said, store):
    found = fails(*arguments, cwd=store)
    assert said in found and "Value error" not in found and "delta" not in found


def test_a_mistyped_form_is_no_name_of_a_file(store):
    said = fails("export", "old", "--to", "cvs:rows.csv", cwd=store)
    assert "cvs" in said and "csv, json or parquet" in said
    assert not list(store.glob("cvs*"))
    (store / "a").mkdir()
    assert files_of([str(store / "a" / "b:c.csv")], ("csv",), force=False)[0][0] == "csv"


def test_a_setting_that_a_run_lacks_is_named(store):
    run = fg.open_run("old", store / "runs")
    with pytest.raises(
        ConfigError, match="expected no setting, of which this run has one; got 'bananas'. Leave it out"
    ):
        run.verdict("bananas")


def test_a_gate_writes_over_a_file_only_with_force(tmp_path):
    (tmp_path / "gate.xml").write_text("mine")
    for arguments in (["--to", "gate.xml"], ["--to", "xml:gate.xml"]):
        said = fails("gate", "old", "-b", "base.json", *arguments, cwd=tmp_path)
        assert "gate.xml is there already" in said
    (tmp_path / "summary.md").write_text("# Mine\n")  # Markdown is appended
    assert "'old': not found" in fails("gate", "old", "-b", "base.json", "--to", "summary.md", cwd=tmp_path)
    assert "'old': not found" in fails("gate", "old", "-b", "base.json", "--to", "gate.xml", "--force", cwd=tmp_path)


SUITE = {"seeds": 1, "training": {"rounds": 1}, "matrix": {"defense": ["mean"]}}


def test_a_run_that_an_earlier_version_stored_under_suite_is_continued(tmp_path, monkeypatch):
    """Earlier versions called every suite without a name ``suite``; now it is called after its file."""
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "other"):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(SUITE))
    before = fg.run("mine.yaml", name="suite", store="runs", jobs=1)
    manifest = before.folder.path / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "name": "suite"}))
    assert choose_folder(fg.api.lay_out("mine.yaml")[1], tmp_path / "runs").path == tmp_path / "runs" / "suite"
    for suite, name in (("other.yaml", "other"), (SUITE | {"name": "named"}, "named")):
        assert choose_folder(fg.api.lay_out(suite)[1], tmp_path / "runs").path == tmp_path / "runs" / name
    assert choose_folder(fg.api.lay_out("mine.yaml")[1], tmp_path / "runs", "mine").path == tmp_path / "runs" / "mine"


def test_one_seed_is_one_seed(tmp_path):
    (tmp_path / "mine.yaml").write_text(json.dumps(SUITE))
    done = forked.fedguard("check", "mine.yaml", cwd=tmp_path)
    assert ", 1 seed: 1 trial to run" in " ".join(done.stdout.split())


def test_conform_writes_its_table(tmp_path, monkeypatch):
    from fedguard.bench.conformance import conform, tables

    monkeypatch.setattr(conform, "conform", lambda *a, **b: [])
    monkeypatch.setattr(tables, "table", lambda found: "a table")
    monkeypatch.setattr(tables, "as_markdown", lambda found: "| a |\n")
    arguments = ("conform", "server", "--engine", "ray", "--to", "x.md")
    assert forked.fedguard(*arguments, cwd=tmp_path).returncode == 0
    assert (tmp_path / "x.md").read_text() == "| a |\n"
    assert "x.md is there already" in fails(*arguments, cwd=tmp_path)
    assert forked.fedguard(*arguments, "--force", cwd=tmp_path).returncode == 0


def test_one_file_is_named_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for other in ("a.json", "./a.json", "json:a.json", str(tmp_path / "a.json"), "link/a.json"):
        with pytest.raises(
            ConfigError, match="--to: expected each file once; json:a.json and json:.*a.json are one file"
        ):
            files_of(["a.json", other], ("json", "md"), force=False)


def test_one_key_is_set_under_one_name(tmp_path):
    (tmp_path / "mine.yaml").write_text(json.dumps(SUITE))
    for old, new in (
        ("network.there", "network.availability"),
        ("matrix.network.there", "matrix.network.availability"),
    ):
        for names in ((old, new), (new, old)):
            settings = [word for name in names for word in ("--set", f"{name}=[always]")]
            said = fails("check", "mine.yaml", *settings, cwd=tmp_path)
            assert (
                f"--set {names[1]}: expected one name of a key; got {names[0]} beside it, which is the same key."
                in said
            )
    found = fg.api.lay_out(tmp_path / "mine.yaml", ["training.rounds=2", "training.rounds=3"])[1]
    assert found.suite.training.rounds == 3  # the last one holds, as with options of other commands


def test_files_are_refused_before_anything_is_computed():
    with pytest.raises(ConfigError, match="expected NAME.md"):
        files_of(["x.txt"], ("md",), force=False)


def test_a_folder_and_what_is_in_none_are_refused_before_anything_is_computed(tmp_path):
    (tmp_path / "there.json").mkdir()
    (tmp_path / "file").touch()
    for name, why in (
        ("there.json", "Is a directory"),
        ("nowhere/x.json", "No such file or directory"),
        ("file/x.json", "Not a directory"),
    ):
        with pytest.raises(ConfigError, match=rf"{name}: cannot be written: {why}"):
            files_of([str(tmp_path / name)], ("json",), force=True)
