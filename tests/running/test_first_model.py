"""A first model from a file: what is read, what is refused and how, and that another file is another cell."""

from __future__ import annotations

import os
import pickle
import struct
import zipfile
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import fedguard as fg
from fedguard.api import lay_out
from fedguard.bench.running.check import explain_refusals
from fedguard.bench.running.rehearsal import why_not
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts.first_model import pin
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.forked import fedguard

#: A network with parameters of four shapes, two of which have as many numbers as each other.
TASK = {"data": "wine", "model": "mlp(hidden=(5,))", "partition": "iid"}
SHAPES = {"1.weight": (5, 13), "1.bias": (5,), "3.weight": (3, 5), "3.bias": (3,)}
D = 5 * 13 + 5 + 3 * 5 + 3


def settings(first: Any = None, **changes: Any) -> dict[str, Any]:
    training = {"rounds": 2, "lr": 0.3, "local_steps": 3} | changes.pop("training", {})
    return {
        "task": TASK,
        "clients": {"total": 4},
        **changes,
        "training": training | ({} if first is None else {"first_model": str(first)}),
    }


def cell_of(first: Any = None, **changes: Any) -> PlannedCell:
    return build_cell(CellConfig.model_validate(settings(first, **changes)), load_registry())


def parts(seed: int = 0, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {name: draw.normal(size=shape).astype(dtype) for name, shape in SHAPES.items()}


def vector(of: dict[str, np.ndarray]) -> torch.Tensor:
    """In the order of the network."""
    return torch.cat([torch.from_numpy(of[name]).reshape(-1) for name in SHAPES])


def start_of(cell: PlannedCell) -> torch.Tensor:
    return Workbench().task(cell, 0).initial_model(Rng(0).child("model"))


# What is read.


def test_parameters_are_found_by_name_in_whatever_order(tmp_path):
    given = parts()
    np.savez(tmp_path / "first.npz", **dict(reversed(given.items())))
    assert torch.equal(start_of(cell_of(tmp_path / "first.npz")), vector(given))


@pytest.mark.parametrize("order", ["<f4", ">f4"])
def test_one_vector_is_in_the_order_of_the_network(order, tmp_path):
    np.save(tmp_path / "first.npy", vector(parts()).numpy().astype(order))
    assert torch.equal(start_of(cell_of(tmp_path / "first.npy")), vector(parts()))


def test_safetensors_by_name(tmp_path):
    save = pytest.importorskip("safetensors.numpy").save_file
    save(parts(), tmp_path / "first.safetensors")
    assert torch.equal(start_of(cell_of(tmp_path / "first.safetensors")), vector(parts()))


def test_float64_keeps_all_digits_of_a_first_model(tmp_path):
    given = parts(dtype=np.float64)
    np.savez(tmp_path / "first.npz", **given)
    found = start_of(cell_of(tmp_path / "first.npz", training={"dtype": "float64"}))
    assert found.dtype == torch.float64 and torch.equal(found, vector(given))


def test_a_training_goes_on_from_the_final_model_of_another_one(tmp_path, monkeypatch):
    """As stored in `artifacts`: a rate of almost 0 shows where it starts, and two halves are not one whole."""
    monkeypatch.chdir(tmp_path)
    run = fg.run({**settings(), "name": "before", "seeds": 1}, store="runs")
    (file,) = (tmp_path / "runs" / "before" / "artifacts").glob("*.npy")
    assert len(run.records) == 1
    after = fg.run(
        {**settings(file.relative_to(tmp_path), training={"lr": 1e-12}), "name": "after", "seeds": [3]}, store="runs"
    )
    (other,) = (tmp_path / "runs" / "after" / "artifacts").glob("*.npy")
    (record,) = after.records.values()
    assert record["status"] == "ok"
    assert np.abs(np.load(other) - np.load(file)).max() < 1e-9
    assert record["config"]["training"]["first_model"].startswith("runs/before/artifacts/")


@pytest.mark.parametrize("architecture", ["server", {"name": "d_psgd", "graph": "ring"}, "fedasync", "all_reduce"])
def test_each_architecture_starts_from_it(architecture, tmp_path):
    np.savez(tmp_path / "first.npz", **parts())
    changes = {"architecture": architecture, "network": {}, "training": {"lr": 1e-12}}
    cell, bench = cell_of(tmp_path / "first.npz", **changes), Workbench()
    assert why_not(cell, 0, bench) is None
    from fedguard.bench.running.trial import run_trial

    _, model = run_trial(cell, 0, {}, bench)
    assert float((model - vector(parts())).abs().max()) < 1e-6


def test_actors_start_from_it_too(tmp_path):
    actors = {"task": {"data": "cartpole", "model": "towers"}, "architecture": "a2c"}
    learner = {"algorithm": "actor_critic", "rounds": 1, "lr": 0.1}
    plain = build_cell(
        CellConfig.model_validate({**actors, "clients": {"total": 2}, "training": learner}), load_registry()
    )
    drawn = start_of(plain)
    np.save(tmp_path / "first.npy", (drawn + 1).numpy())
    named = {**learner, "first_model": str(tmp_path / "first.npy")}
    cell = build_cell(
        CellConfig.model_validate({**actors, "clients": {"total": 2}, "training": named}), load_registry()
    )
    assert torch.equal(start_of(cell), drawn + 1)


# Identity.


def test_another_content_is_another_cell_and_the_default_is_none(tmp_path):
    file = tmp_path / "first.npz"
    np.savez(file, **parts())
    one = cell_of(file)
    assert "first_model" not in cell_of().canonical["training"] and one.id != cell_of().id
    assert cell_of(file).id == one.id
    assert build_cell(CellConfig.model_validate(one.canonical), load_registry()).id == one.id
    np.savez(file, **parts(seed=1))
    other = cell_of(file)
    assert other.id != one.id and not torch.equal(start_of(other), vector(parts()))
    with pytest.raises(ConfigError, match="expected content with the digest"):
        build_cell(CellConfig.model_validate(one.canonical), load_registry())


def test_the_same_file_elsewhere_is_the_same_cell_and_a_stored_suite_names_the_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    for file in ("first.npz", "other/again.npz"):
        np.savez(file, **parts())
    assert cell_of("first.npz").id == cell_of("other/again.npz").id == cell_of(tmp_path / "first.npz").id
    suite = {
        **settings("first.npz"),
        "name": "one",
        "seeds": 1,
        "matrix": {"training.first_model": ["first.npz", "other/again.npz"]},
    }
    run = fg.run(suite, jobs=1)
    stored = yaml.safe_load((tmp_path / "runs" / "one" / "config.resolved.yaml").read_text())
    assert len(run.records) == 1 and stored["training"]["first_model"] == pin("first.npz")
    assert stored["matrix"]["training.first_model"] == [pin("first.npz"), pin("other/again.npz")]
    np.savez("first.npz", **parts(seed=1))
    with pytest.raises(ConfigError, match="expected content with the digest"):
        fg.run("runs/one/config.resolved.yaml", jobs=1)


@pytest.mark.parametrize("of", ["setting", "line", "matrix"])
def test_a_file_that_is_missing_is_blamed_where_it_is_named(tmp_path, monkeypatch, of):
    monkeypatch.chdir(tmp_path)
    first = {"line": "first_model: none.npz, "}.get(of, "")
    swept = {"matrix": "training.first_model: [none.npz], "}.get(of, "")
    (tmp_path / "suite.yaml").write_text(
        f"task: {{data: wine}}\ntraining: {{{first}rounds: 2}}\nmatrix: {{{swept}training.lr: [0.1, 0.2]}}\n"
    )
    where = {
        "setting": "--set training.first_model: ",
        "line": "suite.yaml:2: training.first_model: ",
        "matrix": r"suite.yaml:3: matrix.training.first_model\[0\] \(training.first_model\): ",
    }[of]
    with pytest.raises(ConfigError, match=f"^{where}none.npz: no such file"):
        lay_out("suite.yaml", ["training.first_model=none.npz"] if of == "setting" else [])


def test_numbers_that_numpy_lacks_are_named(tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    save_file({name: torch.from_numpy(one).bfloat16() for name, one in parts().items()}, tmp_path / "first.safetensors")
    with pytest.raises(ConfigError, match="numbers of type bfloat16, which NumPy does not have; save it as float32"):
        start_of(cell_of(tmp_path / "first.safetensors"))


def test_a_content_of_the_same_size_and_time_is_noticed(tmp_path):
    """As `cp -p` leaves it, or a file system whose times are coarse."""
    file = tmp_path / "first.npy"
    np.save(file, vector(parts()).numpy())
    cell, before = cell_of(file), file.stat()
    np.save(file, vector(parts(seed=1)).numpy())
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ConfigError, match="expected content with the digest"):
        start_of(cell)


def test_its_controls_start_from_it_too(tmp_path):
    np.savez(tmp_path / "first.npz", **parts())
    cell = cell_of(tmp_path / "first.npz", attack="sign_flip", defense="median", clients={"total": 4, "malicious": 1})
    assert all(one.training.first_model == cell.training.first_model for one in cell.compared_with.values())


@pytest.mark.forked
def test_workers_read_it_and_a_resumed_run_finds_its_records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("first.npz", **parts())
    suite = {**settings("first.npz"), "name": "many", "seeds": 3}
    runs = [fg.run(suite, store="runs", jobs=2) for _ in range(2)]
    for run in runs:
        assert [record["status"] for record in run.records.values()] == ["ok"] * 3
    one, other = (
        [record["id"] if "id" in record else record["seed"] for record in run.records.values()] for run in runs
    )
    assert one == other


def test_check_says_what_was_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("first.npz", **parts())
    (tmp_path / "suite.yaml").write_text(
        "task: {data: wine, model: 'mlp(hidden=(5,))'}\nclients: {total: 4}\n"
        "training: {rounds: 2, first_model: first.npz}\nseeds: 1\n"
    )
    said = " ".join(fedguard("check", "suite.yaml", cwd=tmp_path).stdout.split())
    assert (
        f"First model: first.npz@sha256:{pin('first.npz')[-16:]}: {D} parameters of float32: 1.weight [5, 13]" in said
    )


def test_an_epsilon_says_that_the_first_model_is_assumed_to_be_public(tmp_path):
    np.savez(tmp_path / "first.npz", **parts())
    noise = {"name": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-3, "sample_rate": 0.3}
    for first in (None, tmp_path / "first.npz"):
        run = fg.run(
            {**settings(first, protocol={"privacy": noise}), "name": f"noise{first is None}", "seeds": 1},
            store=tmp_path,
        )
        privacy = next(iter(run.records.values()))["result"]["privacy"]
        assert privacy["epsilon"] > 0
        said = [one for one in privacy["assumptions"] if "is assumed to be public" in one]
        assert len(said) == (first is not None)
        assert first is None or ("the first model" in said[0] and "first.npz" in said[0])


# What is refused, each in one line.


def _with(**changes: Any) -> Any:
    return lambda file: np.savez(file, **{**parts(), **changes})


def _without(file: Any) -> None:
    np.savez(file, **{name: value for name, value in parts().items() if name != "3.bias"})


def _nan(file: Any) -> None:
    given = parts()
    given["3.weight"][2, 1] = np.nan
    np.savez(file, **given)


def _add(name: str, content: bytes, size: int = 0) -> Any:
    """A file with one more entry: these bytes, and as many zeros."""

    def write(file: Any) -> None:
        np.savez(file, **parts())
        with (
            zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as packed,
            packed.open(name, "w", force_zip64=True) as entry,
        ):
            entry.write(content)
            for _ in range(size >> 24):
                entry.write(bytes(1 << 24))

    return write


def _head(shape: str) -> bytes:
    """An array of NumPy without its numbers."""
    said = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said)) + said


REFUSED: dict[str, tuple[Any, str]] = {
    "transposed": (
        _with(**{"1.weight": parts()["1.weight"].T}),
        r"1\.weight: expected shape \[5, 13\]; got \[13, 5\]\. It is transposed",
    ),
    "flat": (_with(**{"3.weight": parts()["3.weight"].reshape(-1)}), r"3\.weight: expected shape \[3, 5\]; got \[15\]"),
    "one more": (_with(**{"5.weight": np.zeros(2, np.float32)}), r"the file has 5\.weight\."),
    "one less": (_without, r"the file lacks 3\.bias\."),
    "other names": (lambda file: np.savez(file, w=vector(parts()).numpy()), "the file lacks .* and has w"),
    "one nan": (_nan, r"3\.weight: expected finite numbers; got nan at \[2, 1\]"),
    "whole numbers": (_with(**{"3.bias": np.arange(3)}), r"3\.bias: expected float32; got int64"),
    "half": (_with(**{"3.bias": np.zeros(3, np.float16)}), r"3\.bias: expected float32; got float16"),
    "double": (_with(**{"3.bias": np.zeros(3)}), r"expected float32; got float64\. Save it as float32, or set training\.dtype"),
    "objects": (_with(**{"3.bias": np.array([1, "a", None], object)}), "it holds Python objects"),
    "a pickle": (lambda file: file.write_bytes(pickle.dumps(parts())), "it holds Python objects"),
    "nothing": (lambda file: file.write_bytes(b""), "expected plain arrays"),
    "two of a name": (_add("3.bias", b""), r"3\.bias is there twice"),
    "no array": (_add("notes.txt", b"hi"), r"notes\.txt is no array"),
    "a shape beyond int64": (_add("5.bias.npy", _head(f"({2**70},)")), "expected plain arrays"),
    "a head that does not end": (_add("5.bias.npy", _head("((((")), "expected plain arrays"),
    "a zip bomb": (_add("5.bias.npy", _head("(3,)"), 5 << 28), r"it unpacks to 1,342,\d{3},\d{3} bytes"),
    "cut off": (lambda file: (_with()(file), file.write_bytes(file.read_bytes()[:300])), "expected plain arrays"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(case, tmp_path):
    write, why = REFUSED[case]
    file = tmp_path / "first.npz"
    write(file)
    found = why_not(cell_of(file), 0, Workbench())
    assert found is not None and "\n" not in found
    with pytest.raises(ConfigError, match=rf"^training\.first_model: \S*first\.npz: .*{why}"):
        Workbench().task(cell_of(file), 0)


def test_nothing_in_a_file_is_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "opened"), "w"))

    for name, write in (
        ("first.npz", lambda file: np.savez(file, **{**parts(), "3.bias": np.array([Evil()], object)})),
        ("first.npy", lambda file: np.save(file, np.array([Evil()], object))),
        ("other.npy", lambda file: file.write_bytes(pickle.dumps(Evil()))),
    ):
        write(tmp_path / name)
        (tmp_path / "opened").unlink(missing_ok=True)  # numpy has pickled it, and not run it
        assert why_not(cell_of(tmp_path / name), 0, Workbench()) is not None
        assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("absent.npz", "no such file. Paths are relative to"),
        (".", "no such file"),
        ("first.pt", "expected a file of .npz"),
    ],
)
def test_other_files_are_refused(name, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({}, "first.pt")
    with pytest.raises(ConfigError, match=why):
        Workbench().task(cell_of(name), 0)


def test_a_vector_of_another_network_is_refused(tmp_path):
    np.save(tmp_path / "first.npy", np.zeros(D + 1, np.float32))
    with pytest.raises(ConfigError, match=rf"first.npy: expected shape \[{D}\]; got \[{D + 1}\]"):
        Workbench().task(cell_of(tmp_path / "first.npy"), 0)


def test_a_suite_refuses_it_before_anything_runs(tmp_path):
    from fedguard.api import lay_out

    _nan(tmp_path / "first.npz")
    _, plan = lay_out({**settings(tmp_path / "first.npz"), "seeds": 1})[:2]
    assert all("expected finite numbers" in why for why in explain_refusals(plan).values())
    assert len(explain_refusals(plan)) == len(plan.cells)
