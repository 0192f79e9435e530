"""`fedguard accept`: processes with limits, trainings in an ordinary store, the verdict and its files."""

from __future__ import annotations

import json
import textwrap

import pytest
import yaml

from fedguard.bench.acceptance.accept import check_contract
from fedguard.bench.acceptance.seeds import MOST_REPORT_SEED, report_seeds
from fedguard.bench.acceptance.standard import FOLDER, load_standard
from fedguard.bench.acceptance.submission import read_submission
from fedguard.errors import ConfigError, FedGuardError, UnknownName
from tests.acceptance.submissions import HONEST, PLANTED, source
from tests.forked import fedguard

#: A standard of seconds
SMALL = """
standard: "2026.9"
contracts:
  n: 20
  f: 4
  dims: [1, 7]
  draws: 8
  large: {n: 20, d: 20000, cpu_seconds: 10, gib: 2}
  tested: []
  tested_ratio: 2.0
  sameness: {random: 4, adversarial: 4}
  check_seconds: 20
  process_gib: 8
trainings:
  seeds: 3
  worst: {name: worst_case, selection_seeds: 1, attacks: [sign_flip, ipm(tau=5)]}
  backdoors: [model_replacement]
  repeats_within: 0.015
  cells:
    - name: smoke
      counts: true
      suite: &smoke
        task: {data: digits, model: softmax}
        clients: {total: 10, malicious: 2}
        training: {algorithm: fedsgd, rounds: 4, batch_size: 16, lr: 0.5}
    - name: nowhere
      counts: false
      suite: {<<: *smoke, task: {data: {name: idx, folder: not_there}, model: softmax}}
"""

#: What a process does that does not come to its end: what is said of it
ENDING = {
    "hangs in a round of two": (source("while n == 2:\n    pass\nreturn middle"), "did not end within"),
    "ends its process": (source("if context.round == 2:\n    os._exit(3)\nreturn middle"), "ends without a word"),
    "leaves by SystemExit": (source("if n == 2:\n    raise SystemExit(0)\nreturn middle"), "SystemExit: 0"),
    "forks and comes back twice": (source("os.fork()\nreturn middle"), "os.fork"),
    "hoards memory": (source("HELD.append(torch.zeros(150_000_000))\nreturn middle", before="HELD = []"), "memory"),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def judged(folder, text: str):
    (folder / "submitted.py").write_text(text)
    return check_contract(str(folder / "submitted.py"), str(folder / "small.yaml"))


def codes(found, level: str) -> set[str]:
    return {one.code for one in found.of(level)}


def test_a_rule_that_starts_processes_is_called_by_its_name_and_its_children_say_nothing(folder):
    found = judged(folder, PLANTED["starts a process"][0])
    assert "reaches_outside" in codes(found, "failed") and found.exit_code == 3
    assert len(found.checked) + len(found.missing) == 14


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDING)
def test_what_does_not_end_well_is_one_finding_and_the_other_checks_go_on(name, folder):
    text, words = ENDING[name]
    found = judged(folder, text)
    said = " ".join([*(one.words for one in found.findings), *found.missing.values()])
    assert found.exit_code == 3 and words in said, said
    assert found.checked, "no check ran to its end"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "replaces an attack",
        "replaces a function of torch",
        "leaves a variable in the process",
        "mixes the last answer in",
    ],
)
def test_lasting_changes_are_called_by_their_name(name, folder):
    text, _, code = PLANTED[name]
    assert code in codes(judged(folder, text), "failed")


@pytest.mark.slow
def test_answers_that_depend_on_the_hashes_of_words_differ_by_process(folder):
    text = source("word = sorted({'a', 'b', 'c', 'd', 'e', 'f'}, key=hash)\nreturn middle * (1 + ord(word[0]) / 1000)")
    found = judged(folder, text)
    assert codes(found, "failed") == {"differs_by_process"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_package_anywhere\n", "no_such_package_anywhere"),
        ("x = (\n", "SyntaxError"),
        ("x = 1\n", "defines no algorithm"),
        (
            HONEST["upper median"] + "\nclass Other(Submitted):\n    name = 'other'\n",
            "expected one defense; it has other, submitted",
        ),
        (HONEST["upper median"] + "\nrule = 3\n", "rule: expected a pipeline"),
        (HONEST["upper median"] + "\nrule = 'nnm >> submited'\n", "Did you mean 'submitted'"),
        (source("return middle", needs="3"), "needs: expected a tuple"),
    ],
)
def test_a_file_that_is_no_submission_is_one_line(text, words, tmp_path):
    (tmp_path / "submitted_badly.py").write_text(text)
    with pytest.raises(FedGuardError) as caught:
        read_submission(str(tmp_path / "submitted_badly.py"))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_the_file_that_is_named_is_the_one_that_is_judged(tmp_path):
    (tmp_path / "torch.py").write_text(HONEST["upper median"])
    with pytest.raises(ConfigError, match=r"Python imports .*torch.* under this name\. Rename the file"):
        read_submission(str(tmp_path / "torch.py"))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_submission(str(tmp_path / "not_there.py"))


def test_a_mixing_alone_stands_before_the_mean_and_a_file_can_name_its_pipeline(tmp_path):
    (tmp_path / "submitted_rule.py").write_text(HONEST["upper median"] + "\nrule = 'nnm >> submitted'\n")
    found = read_submission(str(tmp_path / "submitted_rule.py"))
    assert found.text == "nnm >> submitted" and found.modules == {"submitted_rule"}
    assert read_submission("bucketing >> median").text.startswith("bucketing")


def test_a_module_beside_the_file_belongs_to_the_submission(tmp_path):
    (tmp_path / "submitted_pair.py").write_text(
        HONEST["upper median"].replace("import inspect", "import beside_pair, inspect")
    )
    digests = set()
    for text in ("import deeper_pair\n", "import deeper_pair\nX = 1\n"):
        for deeper in ("", "Y = 1\n"):
            (tmp_path / "beside_pair.py").write_text(text)
            (tmp_path / "deeper_pair.py").write_text(deeper)
            digests.add(read_submission(str(tmp_path / "submitted_pair.py")).digest)
    assert len(digests) == 4


def test_what_is_no_file_with_a_servers_rule_is_one_line(tmp_path):
    (tmp_path / "a.b.py").write_text(HONEST["upper median"])
    for given, words in (
        (str(tmp_path), "this is a folder"),
        (str(tmp_path / "a.b.py"), "Rename the file"),
        ("client_clipping(bound=1) >> mean", "what clients do to their own updates"),
    ):
        with pytest.raises(ConfigError, match=words):
            read_submission(given)


def test_report_seeds_follow_the_files_bytes_and_are_no_selection_seeds(tmp_path):
    standard = load_standard("2026")
    found = []
    for text in (HONEST["upper median"], HONEST["upper median"] + "# a comment\n"):
        (tmp_path / "submitted_twice.py").write_text(text)
        found.append(report_seeds(read_submission(str(tmp_path / "submitted_twice.py")), standard))
    assert len(set(found[0])) == standard.trainings.seeds and not set(found[0]) & set(found[1])
    assert all(0 <= seed < MOST_REPORT_SEED for seeds in found for seed in seeds)


def test_standards_are_data_with_a_schema(tmp_path):
    assert [path.stem for path in FOLDER.glob("*.yaml")] == ["2026"]
    whole = yaml.safe_load((FOLDER / "2026.yaml").read_text())
    with pytest.raises(UnknownName, match="2026"):
        load_standard("2062")
    for change, words in (
        ({"contracts": {**whole["contracts"], "draws": 2}}, "contracts.draws"),
        ({"trainings": {**whole["trainings"], "seeds": 1}}, "trainings.seeds"),
        ({"wishes": 1}, "wishes"),
        ({"standard": "newest"}, "standard"),
    ):
        (tmp_path / "edited.yaml").write_text(yaml.safe_dump({**whole, **change}))
        with pytest.raises(ConfigError, match=words):
            load_standard(str(tmp_path / "edited.yaml"))
    (tmp_path / "edited.yaml").write_text(textwrap.dedent("a: [1"))
    with pytest.raises(ConfigError, match="expected YAML"):
        load_standard(str(tmp_path / "edited.yaml"))


@pytest.mark.slow
def test_the_trainings_are_ordinary_runs_that_go_on_where_they_stopped(folder):
    (folder / "submitted.py").write_text(HONEST["upper median"])
    arguments = ("accept", "submitted.py", "--standard", "small.yaml", "--jobs", "1")
    first = fedguard(*arguments, cwd=folder)
    assert first.returncode == 4, first.stderr  # the data of one cell are not there, and that is said
    assert "nowhere" in first.stdout and "no such folder" in first.stdout
    kept = json.loads((folder / "submitted.accept" / "verdict.json").read_text())
    (cell,) = kept["cells"]
    assert cell["attack"] in ("sign_flip", "ipm(tau=5)") and len(cell["kept"]) == 3 and cell["gaps"] == []
    assert cell["cost"]["mean"] == pytest.approx(cell["honest"]["mean"] - clean_accuracy(folder), abs=1e-6)
    assert kept["kept"]["mean"] == pytest.approx(sum(cell["kept"]) / 3)
    again = fedguard(*arguments, cwd=folder)
    assert "0 to run" in again.stderr
    assert json.loads((folder / "submitted.accept" / "verdict.json").read_text())["seal"] == kept["seal"]
    shown = fedguard("show", "smoke", "--store", "submitted.accept/runs", cwd=folder)
    assert shown.returncode == 0 and "submitted" in shown.stdout


def clean_accuracy(folder) -> float:
    import fedguard as fg

    rows = fg.open_run("smoke", folder / "submitted.accept" / "runs").rows()
    values = [row["final_accuracy"] for row in rows if row["attack"] == "none"]
    return sum(values) / len(values)


def test_the_command_says_what_is_wrong_in_one_line(folder):
    for arguments, words in (
        (("not_there.py",), "cannot be read"),
        (("krumm",), "Did you mean 'krum'"),
        (("krum", "--standard", "2062"), "unknown standard"),
        (("krum", "--stage", "both"), "unknown stage"),
    ):
        found = fedguard("accept", *arguments, cwd=folder)
        assert found.returncode == 2 and words in found.stderr and "Traceback" not in found.stderr, found.stderr
    assert not list(folder.glob("*.accept"))
