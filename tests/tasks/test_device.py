"""CPU and CUDA by the same code: what is where, what a seed means, and what is said without a GPU.

Where there is no CUDA device the placement is checked on a pretended one (`tests.pretended`), and the tests marked ``cuda`` are
reported as skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from opacus.optimizers import DPOptimizer
from torch import nn

import fedguard as fg
from fedguard.contracts import DPSGD, LocalPlan
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort, schedule
from fedguard.tasks.compute import Compute
from fedguard.tasks.engines.by_example import hold
from fedguard.tasks.engines.private import gaussian
from fedguard.tasks.network import FlatNetwork
from tests.forked import fedguard
from tests.pretended import CASES, FAULTS
from tests.privacy.test_by_example import CLASSES, RIGHT, SHAPE, WRONG, Made
from tests.tasks.test_cohort import altered, deal, plain_loop

cuda = pytest.mark.cuda
needs_one = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: run this on a machine with one")
QUICK = Path("examples/quick.yaml")


@pytest.fixture(autouse=True)
def as_before():
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture(scope="module")
def pretended() -> dict[str, str]:
    # A process that starts from nothing: a fork would inherit an engine of gradients that knows no such device.
    command = [sys.executable, "-m", "tests.pretended"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", [*CASES, "in slices"])
@pytest.mark.slow
def test_everything_costly_is_on_the_device_and_comes_back(case, pretended):
    assert pretended[case] == "right"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.slow
def test_the_pretended_device_shows_what_is_on_a_wrong_one(fault, pretended):
    said = pretended[f"planted {fault}"]
    assert "two devices, pretended:0 and cpu" in said or said == "computed on ['cpu', 'pretended']"


def expected(module: nn.Module, start, parts, plan: LocalPlan) -> torch.Tensor:
    none, moved = torch.zeros_like(start), []
    for client, part in enumerate(parts):
        batches = schedule(plan, len(part), Rng(3).child("client", client).numpy())
        moved.append(plain_loop(module, start, part, batches, plan, (plan.corrections or {}).get(client, none)))
    return torch.stack(moved)


@pytest.mark.parametrize("clients_at_a_time", [1, 2, 10])
@pytest.mark.parametrize("model", ["softmax", "mlp(hidden=(20,))", "lenet5"])
def test_clients_that_cross_to_a_device_in_slices_equal_the_plain_loop(model, clients_at_a_time):
    """With main memory as the device: the updates come back to their own rows, with their own corrections."""
    torch.set_default_dtype(torch.float64)
    parts = deal((5, 17, 9), (1, 16, 16))
    network = FlatNetwork(load_registry().build("model", model), (1, 16, 16), 10, Rng(0))
    start = network.flat.clone()
    plan = altered(LocalPlan(lr=0.05, batch_size=4, epochs=2, momentum=0.5), len(start), "prox and corrections")
    out = torch.full((3, len(start)), torch.nan)
    cohort, rng = Cohort(network, parts), Rng(3)
    schedules = [schedule(plan, len(part), rng.child("client", c).numpy()) for c, part in enumerate(parts)]
    network.compute.memory = 4 * clients_at_a_time * len(start)
    cohort._train_there(start, range(3), schedules, plan, [rng] * 3, out)
    assert (out - expected(network.module, start, parts, plan)).abs().max() < 1e-10


def test_steps_that_a_client_alters_are_altered_across_the_boundary():
    """FedProx's pull, and a projection onto a box, done in main memory."""
    torch.set_default_dtype(torch.float64)
    parts = deal((5, 9))
    network = FlatNetwork(load_registry().build("model", "softmax"), (1, 8, 8), 10, Rng(0))
    start, rng, out = network.flat.clone(), Rng(3), torch.empty(2, network.dim)
    pulled = LocalPlan(lr=0.05, batch_size=4, epochs=2, prox=0.7)
    by_hand = replace(
        pulled, prox=0.0, adjust=lambda now, before, g: g + 0.7 * (now - before), project=lambda now, before: now
    )
    schedules = [schedule(pulled, len(part), rng.child("client", c).numpy()) for c, part in enumerate(parts)]
    cohort = Cohort(network, parts)
    cohort._train_there(start, range(2), schedules, by_hand, [rng] * 2, out)
    assert (out - expected(network.module, start, parts, pulled)).abs().max() < 1e-10
    boxed = replace(by_hand, project=lambda now, before: before + (now - before).clamp(-1e-4, 1e-4))
    cohort._train_there(start, range(2), schedules, boxed, [rng] * 2, out)
    assert out.abs().max() == pytest.approx(1e-4)


def test_the_noise_that_is_brought_to_a_device_is_that_of_opacus():
    layer = nn.Linear(7, 3)
    mine, opacus = (torch.Generator().manual_seed(5) for _ in range(2))
    optimizer = DPOptimizer(
        torch.optim.SGD(layer.parameters(), lr=0.1),
        noise_multiplier=1.3,
        max_grad_norm=0.5,
        expected_batch_size=1,
        generator=opacus,
    )
    for parameter in layer.parameters():
        parameter.summed_grad = torch.zeros_like(parameter)
    optimizer.add_noise()
    for parameter in layer.parameters():
        assert torch.equal(gaussian(parameter.shape, 1.3 * 0.5, mine), parameter.grad)


def test_nothing_is_held_twice_on_the_cpu():
    (part,) = deal((5,))
    network = FlatNetwork(load_registry().build("model", "lenet5"), (1, 8, 8), 10, Rng(0))
    assert Cohort(network, [part])._parts[0].x.data_ptr() == part.x.data_ptr()


def test_without_a_cuda_device_a_run_is_refused_before_it_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError) as refused:
        fg.run(QUICK, device="cuda", store=tmp_path)
    lacking = "this machine" if torch.version.cuda else "this torch build"
    said = f"--device: expected a CUDA device; {lacking} has none. Use --device cpu."
    assert str(refused.value) == said
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="--device: expected cpu or cuda; got 'gpu'"):
        fg.run(QUICK, device="gpu", store=tmp_path)


def test_the_command_line_refuses_in_one_line(tmp_path):
    done = fedguard("run", str(QUICK.resolve()), "--device", "cuda", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("has none. Use --device cpu.")
    assert "--device: expected a CUDA device" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def small(name: str) -> dict:
    return {
        "name": name,
        "seeds": 1,
        "task": {"data": "digits", "model": "mlp", "partition": "iid"},
        "clients": {"total": 6},
        "training": {"rounds": 3},
        "matrix": {"attack": ["none"], "defense": ["mean"]},
    }


def test_the_record_names_the_device(tmp_path):
    (record,) = fg.run(small("here"), device="cpu", jobs=1, store=tmp_path).records.values()
    assert record["environment"]["device"] == "cpu"


@cuda
@needs_one
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("softmax", (1, 8, 8)),
        ("mlp(hidden=(20, 7))", (1, 4, 4)),
        ("lenet5", (1, 16, 16)),
        ("fedavg_cnn", (1, 12, 12)),
        ("resnet20(width=4, groups=2)", (3, 8, 8)),
        ("transformer(width=8, heads=2, layers=1)", (6,)),
    ],
)
def test_on_a_gpu_the_cohort_equals_the_plain_loop(model, shape):
    torch.set_default_dtype(torch.float64)
    classes = 12 if len(shape) == 1 else 10
    parts = deal((5, 40, 17, 1), shape, classes)
    if len(shape) == 1:
        parts = [part.replace(x=(part.x * classes).floor()) for part in parts]
    network = FlatNetwork(load_registry().build("model", model), shape, classes, Rng(0))
    start = network.flat.clone()
    plan = altered(LocalPlan(lr=0.02, batch_size=4, epochs=2, momentum=0.5), len(start), "prox and corrections")
    here = network.logits(start, parts[1].x)
    wanted = expected(network.module, start, parts, plan)  # leaves the module with parameters of its own
    network = FlatNetwork(load_registry().build("model", model), shape, classes, Rng(0), Compute("cuda"))
    out = torch.empty(4, len(start))
    Cohort(network, parts).train(start, range(4), plan, Rng(3), out)
    assert (out - wanted).abs().max() < 1e-9
    assert (network.logits(start, parts[1].x) - here).abs().max() < 1e-9


@cuda
@needs_one
def test_on_a_gpu_private_training_draws_the_same_noise():
    parts = deal((20, 12))
    plan = LocalPlan(lr=0.1, batch_size=5, epochs=2, private=DPSGD(sample_rate=0.25, levels=((1.0, 1.0),)))
    found = []
    for name in ("cpu", "cuda"):
        network = FlatNetwork(load_registry().build("model", "softmax"), (1, 8, 8), 10, Rng(0), Compute(name))
        out = torch.empty(2, network.dim)
        Cohort(network, parts).train(network.flat.clone(), range(2), plan, Rng(3), out)
        found.append(out)
    assert (found[0] - found[1]).norm() < 1e-4 * found[0].norm()


@cuda
@needs_one
@pytest.mark.parametrize("name", [*WRONG, *RIGHT])
def test_on_a_gpu_networks_of_private_trainings_are_held_alike(name):
    """A network is refused or trained on a GPU as it is on the processor, for the same reason."""
    made = FlatNetwork(
        Made(make=(RIGHT | {key: make for key, (make, _) in WRONG.items()})[name]),
        SHAPE,
        CLASSES,
        Rng(0),
        Compute("cuda"),
    )
    if name in RIGHT:
        hold(made, 60)
        return
    with pytest.raises(ConfigError, match=WRONG[name][1]):
        hold(made, 60)


@cuda
@needs_one
def test_on_a_gpu_a_suite_learns_the_same(tmp_path, capsys):
    seconds, accuracy = {}, {}
    for name in ("cpu", "cuda"):
        begun = time.perf_counter()
        (record,) = fg.run(small(name), device=name, jobs=1, store=tmp_path).records.values()
        seconds[name], accuracy[name] = time.perf_counter() - begun, record["result"]["final_accuracy"]
    assert record["environment"]["device"] == torch.cuda.get_device_name()
    assert accuracy["cuda"] == pytest.approx(accuracy["cpu"], abs=0.02)
    with capsys.disabled():
        sys.stdout.write(f"\nCPU : GPU {seconds['cpu'] / seconds['cuda']:.2f}, on {torch.cuda.get_device_name()}\n")


@cuda
@needs_one
@pytest.mark.parametrize("model", ["mlp(hidden=(20,))", "lenet5"])
def test_on_a_gpu_a_suite_of_float64_ends_at_the_same_model(model, tmp_path):
    """Nothing on the way to the GPU and back is rounded to float32, which alone moves a model by some 1e-7 of its length."""
    suite, ends = small("double"), []
    suite["task"]["model"], suite["training"] = model, {"rounds": 3, "dtype": "float64"}
    suite["matrix"] = {"attack": ["none"], "defense": ["geometric_median"]}
    for name in ("cpu", "cuda"):
        records = fg.run(suite, device=name, jobs=1, store=tmp_path / name).records.values()
        assert {record["status"] for record in records} == {"ok"}
        files = [tmp_path / name / "double" / "artifacts" / f"{record['cell']}-seed-000.npy" for record in records]
        ends.append(torch.cat([torch.from_numpy(np.load(file)) for file in files]))
    assert ends[0].dtype == torch.float64
    assert (ends[0] - ends[1]).norm() < 1e-11 * ends[0].norm()
