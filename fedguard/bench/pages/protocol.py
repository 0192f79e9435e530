"""Secure aggregation without a run: a real round message by message, who sees what under each mode, and what a round costs.

It is no page of a run, and so it is not in `fedguard.bench.pages.page.PAGES`: the same for each run, it is drawn without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from secrets import token_hex

from fedguard.bench.explain.masks import ProtocolVisibility, who_sees_what
from fedguard.bench.explain.session import MEANING, READS, STEPS, ProtocolRound, ProtocolStep, costs, measure, play
from fedguard.bench.pages.blocks import (
    Action,
    Address,
    Block,
    Choice,
    Facts,
    Heading,
    More,
    Prose,
    Steps,
    TableBlock,
    Verdict,
    choose,
)
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.protocol_chart import cost, flow
from fedguard.bench.results.run import Run
from fedguard.metrics.stats import bracket, student

#: Numbers of clients with computed costs, and with measured costs, each with this number of repetitions
SIZES, MEASURED, TIMES = (10, 20, 50, 100, 200, 500, 1000), (10, 25, 50, 110), 3

#: Choices of the reader: clients of a round, percentages of clients, numbers in an update
_CLIENTS, _SHARES, _LENGTHS = range(3, 13), ("0", "5", "10", "20", "30"), ("1", "1000", "100000", "10000000")


def blocks(_: Run | None, address: Address) -> Iterator[Block]:
    """The part of the address under ``part``."""
    part = choose(address, "part", list(_PARTS), "round")
    verdict, *rest = _PARTS[part][1](address)
    yield verdict
    yield Choice("part", "Part", list(_PARTS), part, {name: title for name, (title, _) in _PARTS.items()})
    yield from rest


def _round(address: Address) -> Iterator[Block]:
    """One round of the real protocol, of ``clients``, of which the last ``silent`` drop out from the step ``from`` on."""
    sizes = list(map(str, _CLIENTS))
    clients = choose(address, "clients", sizes, "5")
    numbers = [str(number) for number in range(int(clients) + 1)]
    silent, since = choose(address, "silent", numbers, "1"), choose(address, "from", list(STEPS), "masked_input")
    played = _play(int(clients), int(silent), since, address.get("again", ""))
    again = {"clients": clients, "silent": silent, "from": since, "again": token_hex(4)}
    yield summarize_round(played, Action("Again, with new keys", page="protocol", query=again))
    yield Choice("clients", "Clients", sizes, clients, ordered=True)
    yield Choice("silent", "The last ... of them drop out", numbers, silent, ordered=True)
    yield Choice("from", "From this step on", list(STEPS), since)
    yield from draw_steps(played, address.get("step", "MASKED"))


@lru_cache(16)
def _play(clients: int, silent: int, since: str, again: str) -> ProtocolRound:  # noqa: ARG001  part of the cache's key
    return play(clients, {since: list(range(clients - silent, clients))})


def summarize_round(played: ProtocolRound, *actions: Action) -> Verdict:
    """What the server learns at the end, beside the sum computed without the protocol."""
    setup = (
        "Client i has (i + 1) times 1, 10 and 100, so that sums can be checked by eye. "
        f"Each has {played.config.degree} neighbors; {played.config.threshold} shares rebuild a secret; "
        f"{played.config.quorum} signatures are needed before a share leaves."
    )
    trained = "nothing was trained; one round of the real protocol with fresh keys, all parties in this process"
    if played.total is None:
        headline = "No sum comes out, and no input is opened: too few are left, so the round is aborted"
        return Verdict(headline, [str(played.aborted), setup], trained, (), actions, "warn")
    who, total, clear = (", ".join(map(str, one)) for one in (played.included, played.total, played.expected))
    same = bool((played.total == played.expected).all())
    lead = [f"Added up in the clear: {clear}. {'They are equal' if same else 'They differ'}.", setup]
    headline = f"The server learns a sum and no single input: {total} over clients {who}"
    return Verdict(headline, lead, trained, (), actions, "good" if same else "bad")


def draw_steps(played: ProtocolRound, asked: str) -> Iterator[Block]:
    """The steps of a round, and the messages of the one asked for, or of the last before it."""
    kinds = [step.kind for step in played.steps]
    current = kinds.index(asked) if asked in kinds else len(kinds) - 1
    yield Steps([(step.kind, _describe(step)) for step in played.steps], current, title="Steps")
    step = played.steps[current]
    if step.kind == "MASKED":
        rows = [
            [f"client {client}", " ".join(map(str, played.inputs[client])), " ".join(f"{one:08x}" for one in seen)]
            for client, seen in played.masked.items()
        ]
        heads = [Heading(name) for name in ("from", "the client has", "the server sees")]
        yield TableBlock(heads, rows, "Inputs, and the masked inputs in base 16", "What the server sees of each input")
    yield flow(step, len(played.inputs))
    if step.kind in READS:
        can, cannot = READS[step.kind]
        yield Facts([("the server can read", [can]), ("it cannot read", [cannot])])


def _describe(step: ProtocolStep) -> str:
    way = "from the server to clients" if step.from_server else "from clients to the server"
    return f"{MEANING[step.kind]}; {len(step.events)} messages {way}, {step.bytes:,} bytes in all"


_cached_visibility = lru_cache(1)(who_sees_what)


def _visibility(address: Address) -> Iterator[Block]:
    """What each side sees under each mode, and which defenses and attacks can run; closer for the mode under ``setup``."""
    setups = {one.name: one for one in _cached_visibility()}
    hidden = sum("each client's update" not in one.server for one in setups.values())
    yield Verdict(
        f"{hidden} of {len(setups)} setups hide each client's update from the server",
        ["100 clients, 1 of them malicious, and a malicious server with clean data of its own."],
        "nothing was trained; asked of the code that lets cells run or refuses them",
    )
    heads = ("protocol", "defenses that run", "attacks on privacy that run")
    rows = [[one.name, _count(one.runs, one.refused), _count(one.infer, one.blind)] for one in setups.values()]
    yield TableBlock([Heading(name) for name in heads], rows, "What can run under each setup")
    chosen = choose(address, "setup", list(setups), "full")
    yield Choice("setup", "Look closer at", list(setups), chosen)
    yield from _closer(setups[chosen])


def _closer(one: ProtocolVisibility) -> Iterator[Block]:
    yield Prose([one.words, *([one.noise] if one.noise else [])])
    yield Facts([("the server sees", one.server), ("colluders may be granted", one.colluders)])
    for title, refused in (("Defenses refused", one.refused), ("Attacks on privacy refused", one.blind)):
        yield Prose(
            [f"{', '.join(names)}: {why}" for why, names in _by_reason(refused).items()], f"{title}: {len(refused)}"
        )
    yield More(f"Defenses that run: {len(one.runs)}", [Prose([", ".join(one.runs)])])


def _count(runs: tuple[str, ...], refused: Mapping[str, str]) -> str:
    return f"{len(runs)} of {len(runs) + len(refused)}"


def _by_reason(refused: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that are refused for the same reason, which starts with the name."""
    found: dict[str, list[str]] = {}
    for name, why in refused.items():
        found.setdefault(why.removeprefix(name).strip(), []).append(name)
    return found


def _cost(address: Address) -> Iterator[Block]:
    """Bytes computed from the form of the messages; times measured on request."""
    colluding, dropping = choose(address, "colluding", _SHARES, "10"), choose(address, "dropping", _SHARES, "10")
    length, timed = choose(address, "length", _LENGTHS, "1000"), choose(address, "time", ("no", "yes"), "no")
    choices = [
        Choice("colluding", "May collude with the server, %", _SHARES, colluding, ordered=True),
        Choice("dropping", "May drop out, %", _SHARES, dropping, ordered=True),
        Choice("length", "Numbers in an update", _LENGTHS, length),
        Choice("time", "Measure the time", ("no", "yes"), timed, {"yes": "yes, by real rounds on this machine"}),
    ]
    setting = int(colluding) / 100, int(dropping) / 100, int(length)
    trained = "nothing was trained; computed from the form of the messages, 4 bytes for each number of an update"
    found = costs(SIZES, *setting)
    last = [one for one in found if one.clients == SIZES[-1]]
    sends = ", ".join(f"{one.up / 1000:,.0f} kB with {one.neighbors} neighbors ({one.graph} graph)" for one in last)
    yield Verdict(f"Among {SIZES[-1]:,} clients, each sends in a round {sends}", [
        "Nobody drops out. Up to 100 clients the protocol takes the complete graph, and beyond the sparsest one that keeps "
        "its promises, with 2^40 tries of a malicious server reckoned with where it takes the sparse graph.",
        "Fewer neighbors cost less, and hide an input among fewer in the worst case.",
    ], trained)  # fmt: skip
    yield from choices
    yield cost(found)
    if timed == "yes":
        yield _measure(*setting)


@lru_cache(16)
def _measure(colluding: float, dropping: float, length: int) -> TableBlock:
    """Times and bytes of real rounds on this machine."""
    rows: list[list[str | float | None]] = []
    for clients in MEASURED:
        runs = [measure(clients, length, colluding, dropping) for _ in range(TIMES)]
        time = student([1000 * one.seconds for one in runs])
        spread = "" if time.half_width is None else f" {bracket(time.mean, time.half_width, '.3g')}"
        sizes = f"{runs[0].up:,.0f}", f"{runs[0].down:,.0f}"
        rows.append([str(clients), str(runs[0].neighbors), f"{time.mean:.3g}{spread}", *sizes])
    heads = ("clients", "neighbors", "ms for each client", "bytes sent", "bytes received")
    caption = (
        f"{TIMES} rounds each, on this machine, all parties one after the other in one process: the time of clients and "
        "server together, divided by the number of clients, with a 95 % interval"
    )
    return TableBlock([Heading(name, number=True) for name in heads], rows, caption, "Measured")


#: The parts by their name in the address, each with its title
_PARTS: Mapping[str, tuple[str, Callable[[Address], Iterator[Block]]]] = {
    "round": ("a round, step by step", _round),
    "visibility": ("who sees what", _visibility),
    "cost": ("what it costs", _cost),
}

PROTOCOL = Page("protocol", "Protocol, step by step", blocks)
