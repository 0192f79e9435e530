"""Real processes beside the simulation. Here they are threads that hand each other vectors, which takes no start; a slow test has
processes and sockets, and `tests/running/cluster/test_ray.py` has actors.
"""

from __future__ import annotations

import json
import queue
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.processes import collective, gossip
from fedguard.bench.conformance.conform import ENGINES, TOLERANCE, cell_of, conform, difference
from fedguard.bench.conformance.engine import SequentialTrainer, TrainingOutcome, set_up_of, simulate_models, start_of
from fedguard.bench.conformance.remote import RemoteTrainer, simulate_in_order
from fedguard.bench.conformance.remote import train_remotely as over
from fedguard.bench.conformance.tables import COLUMNS, as_markdown, table
from fedguard.errors import ConfigError, NotAllowed
from tests.forked import ForkedNode, fedguard

RINGS = ("all_reduce", "all_reduce(topology='reduce_broadcast')", "all_reduce(topology='hierarchical', group=2)")
GOSSIP = (
    "d_psgd", "d_psgd(order='combine_first', graph='complete')", "d2(weight=0.5)", "dsgt", "sgp(graph='directed_ring')", "ako",
    "wide_area", "detag", "defacto", "lone",
)  # fmt: skip
#: The rule needs more rows than a node hears, or the attack models where there are none.
IMPOSSIBLE = {("lone", "alie"), ("wide_area", "alie"), ("sgp(graph='directed_ring')", "alie")}


#: One thread computes at a time, since FedGuard is not made for several: whoever waits for a vector lets go.
TURN = threading.Lock()


class Post:
    """Links between threads."""

    def __init__(self, rank, nodes, boxes, altered=lambda source, parcel: parcel.vector):
        self.rank, self.nodes, self.boxes, self.altered = rank, nodes, boxes, altered

    def exchange(self, sent, received):
        for parcel in sent:
            self.boxes[self.rank, parcel.other, parcel.tag].put(self.altered(self.rank, parcel).clone())
        for parcel in received:
            TURN.release()
            try:
                came = self.boxes[parcel.other, self.rank, parcel.tag].get(timeout=20)
            finally:
                TURN.acquire()
            parcel.vector.copy_(came)


def trained(cell, altered=lambda source, parcel: parcel.vector, seed=0):
    """float32 ``[n, d]``: what nodes come to that have nothing in common but what they send."""
    nodes, boxes = cell.config.clients.total, {}
    for source in range(nodes):  # made beforehand: threads must not make one of a name twice
        for to in range(nodes):
            for tag in range(nodes):
                boxes[source, to, tag] = queue.Queue()
    found, setups = {}, [set_up_of(cell, seed) for _ in range(nodes)]  # nothing in common
    each = gossip.models if isinstance(cell.architecture, Gossip) else collective.models

    def train(rank):
        try:
            with TURN:
                *_, found[rank] = each(cell.architecture, setups[rank], Post(rank, nodes, boxes, altered))
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [one for one in found.values() if isinstance(one, Exception)]
    if failed:
        raise failed[0]
    return torch.stack([found[rank] for rank in range(nodes)])


def apart(cell, real, seed=0):
    setup = set_up_of(cell, seed)
    beside = simulate_models(cell.architecture, setup).expand_as(real)
    return difference(real, beside, start_of(setup))


@pytest.mark.parametrize("attack", ["none", "ipm", "sign_flip"])
@pytest.mark.parametrize("architecture", RINGS)
def test_an_all_reduce_of_processes_is_the_simulated_one_to_the_last_bit(architecture, attack):
    cell = cell_of(architecture, attack, "mean", 4, 3)
    real, setup = trained(cell), set_up_of(cell, 0)
    one_by_one = simulate_models(cell.architecture, replace(setup, trainer=SequentialTrainer(setup).train))
    assert torch.equal(real, one_by_one.expand_as(real))
    assert apart(cell, real) < 1e-6


@pytest.mark.parametrize(
    "attack, defense", [("none", "mean"), ("ipm", "mean"), ("dissensus", "mean"), ("alie", "median")]
)
@pytest.mark.parametrize("architecture", GOSSIP)
def test_a_gossip_of_processes_is_the_simulated_one(architecture, attack, defense):
    """What a node was not told is NaN in it: so its model would be, if its algorithm read more than the node can know."""
    if (architecture, attack) in IMPOSSIBLE:
        with pytest.raises(NotAllowed):
            cell_of(architecture, attack, defense, 5, 3)
        return
    cell = cell_of(architecture, attack, defense, 5, 3)
    real = trained(cell)
    assert bool(real.isfinite().all())
    assert apart(cell, real) < TOLERANCE


def test_who_is_heard_by_all_at_once_tells_all_the_same():
    cell = cell_of("d_psgd(broadcast=True, graph='complete')", "ipm", "median", 5, 3)
    assert apart(cell, trained(cell)) < TOLERANCE


@pytest.mark.parametrize(
    "altered",
    [
        lambda source, parcel: parcel.vector.roll(1) if source == 1 else parcel.vector,
        lambda source, parcel: parcel.vector * (1 + 1e-3),
        lambda source, parcel: torch.zeros_like(parcel.vector) if (source, parcel.other) == (0, 1) else parcel.vector,
    ],
    ids=["another's chunk", "a thousandth more", "one link is dead"],
)
@pytest.mark.parametrize("architecture", ["all_reduce", "d_psgd"])
def test_what_is_altered_on_its_way_does_not_conform(architecture, altered):
    cell = cell_of(architecture, "none", "mean", 4, 3)
    assert not apart(cell, trained(cell, altered)) <= TOLERANCE


def test_without_the_attack_it_does_not_conform():
    """A real side on which nobody lies is not that of the attack."""
    honest, attacked = (cell_of("d_psgd", attack, "mean", 4, 3) for attack in ("none", "ipm"))
    assert not apart(attacked, trained(honest)) <= TOLERANCE


class Late(RemoteTrainer):
    """Clients that are done in some order, each in a moment of its own."""

    def __init__(self, setup, seed):
        super().__init__()
        self._clients, self._draw = SequentialTrainer(setup), torch.Generator().manual_seed(seed)
        self._done = {}

    def send(self, trainings):
        for (client, turn), model in trainings:
            (sent,) = self._clients.train(model, [turn], (client,))
            self._done[client, turn] = sent.numpy()

    def receive(self):
        keys = sorted(self._done)
        key = keys[int(torch.randint(len(keys), (1,), generator=self._draw))]
        return key, self._done.pop(key)


@pytest.mark.parametrize("attack", ["none", "ipm"])
@pytest.mark.parametrize(
    "architecture",
    [
        "parameter_server", "parameter_server(consistency='eventual')", "parameter_server(consistency='bounded', tau=1)", "fedbuff(buffer=2)",
        "fedasync",
    ],
)  # fmt: skip
def test_a_server_that_follows_reality_is_replayed_to_the_last_bit(architecture, attack):
    follows(architecture, attack)


@pytest.mark.parametrize("architecture", [pytest.param("a2c", marks=pytest.mark.slow), "a3c", "impala(buffer=2)"])
def test_so_is_a_learner_whose_actors_are_elsewhere(architecture):
    follows(architecture, None)


def follows(architecture, attack):
    """In the order in which updates really came; in another order it ends elsewhere, unless all wait for each other."""
    cell = cell_of(architecture, attack, "mean", 4, 3)
    setup, finals = set_up_of(cell, 0), []

    def one_by_one():
        """Actors keep where they stand, so each training has its own."""
        return replace(setup, trainer=SequentialTrainer(setup).train)

    for seed in (1, 2):
        real = over(Late(setup, seed), cell, 0)
        assert torch.equal(real.models, simulate_in_order(cell, one_by_one(), real.order))
        assert len(real.order) >= 3 * 4
        finals.append(real.models)
    together = architecture in ("parameter_server", "a2c")
    assert torch.equal(*finals) == together
    if together:  # and then it is the plain simulation
        assert torch.equal(finals[0], simulate_models(cell.architecture, one_by_one()))


@pytest.mark.parametrize("attack", ["none", "ipm"])
def test_a_server_whose_clients_answer_in_any_order_is_the_simulated_one_to_the_last_bit(attack):
    cell = cell_of("server", attack, "mean", 4, 3)
    setup = set_up_of(cell, 0)
    for seed in (1, 2):
        real = over(Late(setup, seed), cell, 0)
        assert real.order is None
        assert torch.equal(
            real.models, simulate_models(cell.architecture, replace(setup, trainer=SequentialTrainer(setup).train))
        )


class InOrder(Late):
    """The first clients are done first."""

    def receive(self):
        key = min(self._done)
        return key, self._done.pop(key)


def test_what_arrives_while_a_server_waits_for_others_is_told_afterwards():
    setup = set_up_of(cell_of("server", "none", "mean", 4, 1), 0)
    late, start = InOrder(setup, 3), start_of(setup)
    for client in (0, 1):
        late.begin((client, 1), start)
    late.train(start, [1, 1], (2, 3))
    assert [late.wait_for_next(), late.wait_for_next()] == [(0, 1), (1, 1)]
    alone = SequentialTrainer(setup).train(start, [1, 1], (0, 1))
    assert torch.equal(torch.stack(late.train(start, [1, 1], (0, 1))), torch.stack(alone))


class LiarsFirst(Late):
    """Whoever is malicious is done first, and then no more."""

    def __init__(self, setup):
        super().__init__(setup, 0)
        self._malicious = setup.malicious

    def receive(self):
        key = min(self._done, key=lambda key: (key[1], key[0] not in self._malicious))
        return key, self._done.pop(key)


def test_a_reality_in_which_nobody_could_craft_is_told_and_is_no_fault_of_the_settings():
    """An attack that never was would conform in any case. Whether it is, no plan can tell beforehand."""
    setup = set_up_of(cell := cell_of("fedasync", "ipm", "mean", 4, 1), 0)
    with pytest.raises(
        ConfigError, match="sent arrived before any honest update, as it happened, so they sent honest ones"
    ):
        over(LiarsFirst(setup), cell, 0)
    assert over(LiarsFirst(setup), cell_of("fedasync", "ipm", "mean", 4, 2), 0).order


@pytest.mark.parametrize(
    "architecture, engine, why",
    [
        ("server", "gloo", "gloo runs all_reduce with a sum"),
        ("d_psgd", "ray", "ray runs server, and servers in simulated time"),
        ("all_reduce(masks=16)", "gloo", "agreed on in one process. Leave out masks"),
        ("all_reduce(topology='all_to_all')", "gloo", "has no sum on the way"),
        ("d_psgd(masks=16, graph='complete')", "gloo", "masks of d_psgd are agreed on in one process"),
        ("d_psgd", "deployment", "deployment runs server, and servers in simulated time"),
        ("google", "deployment", "decides by simulated seconds"),
        ("fedasync", "flower", "all nodes are in one process, and answer in turn. Take --engine deployment"),
        ("google", "ray", "decides by simulated seconds"),
        ("apex", "ray", "what the actors of apex send is not carried there yet. Take a3c"),
        ("seed_rl", "ray", "what the actors of seed_rl send is not carried there yet"),
        ("a3c", "deployment", "an actor's environments go on from one rollout to the next"),
        ("server", "carrier_pigeon", "unknown engine 'carrier_pigeon'"),
    ],
)
def test_what_an_engine_does_not_run_is_refused_in_a_line(architecture, engine, why):
    with pytest.raises(ConfigError) as refused:
        conform([architecture], engine)
    assert why in str(refused.value) and "\n" not in str(refused.value)


class Wrong:
    """An engine whose processes come to something else."""

    name = runs = "wrong"

    def why_not(self, architecture):
        return None

    def run(self, cells, seed):
        found = [simulate_models(cell.architecture, set_up_of(cell, seed)) for cell in cells]
        return [TrainingOutcome(one + 0.01, 0.1) for one in found]

    def simulate_cell(self, cell, setup, order):
        return simulate_models(cell.architecture, setup)


def test_a_difference_is_told():
    (first, second) = conform(["d_psgd"], "wrong", rounds=2, engines={"wrong": Wrong()})
    assert not first.passed and not second.passed and not first.same_bits
    assert "differ: " in as_markdown([first])
    console = Console(width=80)
    with console.capture() as screen:
        console.print(table([first, second]))
    title, header, *_ = screen.get().splitlines()
    assert title.strip() == "wrong" and header.split() == [column for column in COLUMNS if column != "engine"]
    assert any(line.rstrip().endswith("/ 0.1") for line in screen.get().splitlines())
    assert json.loads(json.dumps(first.as_dict()))["passed"] is False
    assert difference(torch.full((1, 2), torch.nan), torch.ones(1, 2), torch.zeros(2)) == float("inf")
    assert difference(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(2)) == float("inf")  # nothing has moved


@pytest.fixture
def forked_nodes(monkeypatch):
    """Processes of nodes are copies of the tests' own, which saves the seconds that each takes to start."""
    monkeypatch.setattr("fedguard.bench.conformance.gloo.subprocess", SimpleNamespace(Popen=ForkedNode))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["all_reduce", "d_psgd"])
def test_the_command_with_processes_over_sockets(architecture, tmp_path, request):
    """Those of `all_reduce` start from nothing, as a user's do."""
    if architecture != "all_reduce":
        request.getfixturevalue("forked_nodes")
    done = fedguard(
        "conform", architecture, "--engine", "gloo", "--nodes", "3", "--rounds", "3", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    plain, attacked = json.loads(done.stdout)
    assert (plain["attack"], attacked["attack"]) == ("none", "ipm")
    assert plain["passed"] and attacked["passed"]
    assert plain["real"]["sha256"] != attacked["real"]["sha256"]
    if architecture == "all_reduce":
        assert plain["same_bits"] and attacked["same_bits"]


@pytest.mark.slow
def test_a_process_that_dies_is_one_line(forked_nodes, monkeypatch):
    cell = cell_of("all_reduce", "none", "mean", 3, 2)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    with pytest.raises(ConfigError, match="--engine gloo: the process of node . ended: .*no-such-interface") as raised:
        ENGINES["gloo"].run([cell], 0)
    assert "\n" not in str(raised.value)
