"""The protections of a run, from none to distributed noise: what each claims, what an audit found, what leaks, what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedguard.bench.audits.suites import CellAudit, StoredAudit
from fedguard.bench.records.schema import CompletedRecord
from fedguard.bench.results.answer import DefenseSummary, standings
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.bench.results.trilemma import WorstAttack

#: What the server sees in a mode of secure aggregation
SEES = {
    "none": "each update",
    "full": "one sum",
    "groups": "the sum of each group",
    "group_testing": "sums of overlapping groups",
}

#: Names of protections without noise, where the mode's name is not enough
NO_PROTECTION = "no protection"
_PLAIN = {"none": NO_PROTECTION, "full": "secure aggregation"}

_NOISE = {"client": "each client adds noise", "server": "a trusted server adds noise"}

#: Protections of the same mode and noise, in their order on the page
_ORDER = ("none", "record", "client", "distributed")

#: An epsilon is shown as the suite asked for it if the accountant's is at most this share below
_NEAR = 0.01


@dataclass(frozen=True, kw_only=True)
class Leak:
    """The inputs that one kind of server rebuilds with the attack that rebuilds most of them.

    Attributes:
        revealed: number of inputs that are nearer than each trivial guess by 1 dB, of ``images``, over targets and seeds.
        status: ``ok``; else why there is no number: ``refused``, ``failed`` or ``missing``.
    """

    status: str
    attack: str = ""
    revealed: int = 0
    images: int = 0

    @property
    def share(self) -> float | None:
        return self.revealed / self.images if self.images else None


@dataclass(frozen=True, kw_only=True)
class Protection:
    """One protocol: how it masks, and who adds which noise.

    Attributes:
        name: unique on the page; ``about``: who does what.
        mode, kind: of secure aggregation and of noise; ``none`` for none.
        rows: its positions in the matrix, seed by seed.
        epsilon: the largest that a trial claims, and as the suite asked for it; None without a guarantee.
        unproven: attacks under which there is no guarantee, though there is one under others.
        leaks: by server, ``curious`` or ``malicious``.
        audits: of its noise.
        summary: accuracy and membership of the chosen defense.
        auc: the membership attack with the highest AUC; ``auc_by_seed``: its values.
    """

    name: str
    about: str
    mode: str
    kind: str
    rows: Sequence[Mapping[str, Any]]
    epsilon: float | None
    asked: float | None
    unproven: Sequence[str]
    leaks: Mapping[str, Leak]
    audits: Sequence[CellAudit]
    summary: DefenseSummary | None
    auc_by_seed: Sequence[float] = ()

    @property
    def masks(self) -> bool:
        return self.mode != "none"

    @property
    def noisy(self) -> bool:
        return self.kind != "none"

    @property
    def auc(self) -> WorstAttack | None:
        return self.summary.leakage.get("membership_auc") if self.summary else None

    @property
    def claim(self) -> str:
        """``10``, as the suite asked for it; or ``no guarantee``."""
        if self.epsilon is None:
            return "no guarantee"
        return f"{self.epsilon if self.asked is None else self.asked:.3g}"

    @property
    def label(self) -> str:
        return f"{self.name}: {self.about}"


def other_keys(run: Run) -> list[str]:
    """The swept keys that are no protection."""
    return [key for key in run.swept if key.partition(".")[0] != "protocol"]


def list_protections(run: Run, others: str, defense: str, stored: StoredAudit | None) -> list[Protection]:
    """The protections in their order.

    Args:
        others: the values of `other_keys`.
        defense: the defense under which all is measured.
        stored: the audit of the run.
    """
    keys = [key for key in run.swept if key.partition(".")[0] == "protocol"]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in run.rows():
        if row["defense"] == defense and setting(row, other_keys(run)) == others:
            groups.setdefault(setting(row, keys), []).append(row)
    servers = {row["attack"]: inference["server"] for row, inference in _inferences(run, run.rows())}
    summaries = {one.setting: one for one in standings(run) if one.defense == defense}
    found = [_protection(run, its, servers, summaries, stored) for its in groups.values()]
    found.sort(key=lambda one: (_rank(one.kind), one.masks, -(one.epsilon or 0.0)))
    return list(_distinct(found))


def _rank(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _protection(
    run: Run,
    rows: Sequence[Mapping[str, Any]],
    servers: Mapping[str, str],
    summaries: Mapping[str, DefenseSummary],
    stored: StoredAudit | None,
) -> Protection:
    records = [record for row in rows if (record := _record(run, row))]
    where = setting(rows[0], run.swept)  # another defense may have run where this one is refused
    cards = (record["threat_card"] for swept, record in run.trials() if setting(swept, run.swept) == where)
    card: Mapping[str, Any] = next(cards, {})
    mode, kind = card.get("secure_aggregation", "") or "none", card.get("privacy") or "none"
    name, about = _name(mode, kind, card.get("noise"))
    if not card:
        mode = ""
        name, about = setting(rows[0], run.swept) or "this protocol", "nothing ran"
    ran = [row for row in rows if row["status"] == "ok"]
    epsilon = max((row["epsilon"] for row in ran if row["epsilon"] is not None), default=None)
    summary = summaries.get(where)
    member = summary.leakage.get("membership_auc") if summary else None
    cells = {row["cell"] for row in rows}
    positions = {_label(one["swept"]) for one in run.manifest["positions"] if one["cell"] in cells}
    return Protection(
        name=name,
        about=about,
        mode=mode,
        kind=kind,
        rows=rows,
        epsilon=epsilon,
        asked=_epsilon_of_suite(records, epsilon),
        unproven=list(dict.fromkeys(row["attack"] for row in ran if row["epsilon"] is None)) if epsilon else [],
        leaks={server: leak for server in ("curious", "malicious") if (leak := _leak(run, rows, servers, server))},
        audits=[one for one in stored.audits if positions.intersection(one.cells)] if stored else [],
        summary=summary,
        auc_by_seed=[row["membership_auc"] for row in rows if member and row["attack"] == member.attack],
    )


def _name(mode: str, kind: str, noise: str | None) -> tuple[str, str]:
    sees = f"the server sees {SEES.get(mode, f'what {mode} shows')}"
    plain = _PLAIN.get(mode, f"secure aggregation, {mode.replace('_', ' ')}")
    masked = plain != NO_PROTECTION
    if kind == "none":
        return plain, sees
    if kind in ("record", "client"):
        return f"{kind}-level DP", _NOISE.get(noise or "", "noise") + (f"; {sees}" if masked else "")
    return f"{kind} DP", "noise in the masked sum" if masked else _NOISE.get(noise or "", "noise")


def _distinct(found: Sequence[Protection]) -> Iterator[Protection]:
    """The same with distinct names: by epsilon, else by number."""
    names = [one.name for one in found]
    named = [
        f"{one.name}, ε = {one.claim}" if names.count(one.name) > 1 and one.epsilon is not None else one.name
        for one in found
    ]
    for number, (one, name) in enumerate(zip(found, named, strict=True)):
        suffix = f" ({named[: number + 1].count(name)})" if named.count(name) > 1 else ""
        yield replace(one, name=f"{name}{suffix}")


def _record(run: Run, row: Mapping[str, Any]) -> CompletedRecord | None:
    return run.ran.get((row["cell"], row["seed"])) if row["status"] == "ok" else None


def _inferences(run: Run, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Rows of reconstructions that ran, with what was found."""
    for row in rows:
        record = _record(run, row)
        if row["goal"] == "reconstruction" and record and (found := record["result"]["inference"]):
            yield row, found


def _epsilon_of_suite(records: Sequence[CompletedRecord], epsilon: float | None) -> float | None:
    """The epsilon in the suite, if the accountant's is no larger, and hardly smaller."""
    for record in records:
        config: Mapping[str, Any] = record["config"]
        noise = config["protocol"]["privacy"]
        asked = noise.get("epsilon") if isinstance(noise, Mapping) else None
        if asked and epsilon and asked * (1 - _NEAR) <= epsilon <= asked:
            return float(asked)
    return None


def _leak(run: Run, rows: Sequence[Mapping[str, Any]], servers: Mapping[str, str], server: str) -> Leak | None:
    """The worst attack of this server; None if the run has no attack of it."""
    tried = [row for row in rows if servers.get(row["attack"]) == server]
    if not tried:
        return None
    counts: dict[str, list[tuple[int, int]]] = {}
    for row, found in _inferences(run, tried):
        scores = [one for one in found["targets"] if "revealed" in one]
        counts.setdefault(row["attack"], []).extend((one["revealed"], one["images"]) for one in scores)
    partly = {row["attack"] for row in tried if row["status"] != "ok"}  # seeds that happened to work are another figure
    leaks = [
        Leak(status="ok", attack=attack, revealed=sum(one for one, _ in its), images=sum(all_ for _, all_ in its))
        for attack, its in counts.items()
        if its and attack not in partly
    ]
    status = next((one for one in ("failed", "missing", "refused") if one in {row["status"] for row in tried}), "")
    return max(leaks, key=lambda one: one.share or 0.0, default=Leak(status=status or "nothing seen"))


def _label(swept: Mapping[str, str]) -> str:
    """A cell as an audit names it."""
    return ", ".join(f"{key}: {value}" for key, value in swept.items())
