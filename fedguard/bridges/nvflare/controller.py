"""The controller of a job under attack: the job's own, except that it holds the results of a round until all are there."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.workflows.fedavg import FedAvg

from fedguard.bridges.jobs import Curve, TrialRequest
from fedguard.bridges.place import Place, Reply
from fedguard.errors import FedGuardError, NotAllowed
from fedguard.guard import Guard
from fedguard.rng import Rng

#: NVFlare's name for the number of examples that a site claims.
SAMPLES = FLMetaKey.NUM_STEPS_CURRENT_ROUND


class JobPlace(Place):
    """The place of attack and rule in a job, with what its sites report.

    Attributes:
        curve: the metrics of honest sites, by the number of rounds that their model was trained.
        lost: number of missing results.
        gone: by site, the first round without a result of it.
    """

    without_claim = (
        f"expected {SAMPLES} in its meta, the number of examples, which attack or rule go by; got none. Let the script send "
        f"flare.FLModel(..., meta={{'{SAMPLES}': len(x)}})."
    )

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.curve: Curve = []
        self.lost = 0
        self.gone: dict[str, int] = {}

    @classmethod
    def of_request(cls, asked: TrialRequest) -> JobPlace:
        """The place that a trial asks for."""
        granted = asked.knowledge or ("honest_updates", "own_data", "model")
        guard = Guard(
            attack=asked.attack,
            defense=asked.defense or "mean",
            f=asked.f,
            assumed_f=asked.assumed_f,
            seed=asked.seed,
            knowledge=granted,
        )
        return cls(guard, defended=asked.defense is not None, seed=asked.seed, malicious=asked.malicious)

    def rank(self, site: str) -> list[Any]:
        """``site-2`` before ``site-10``."""
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", site)]

    def record_missing(self, sites: set[str]) -> None:
        """Record that these sites sent no result in the current round."""
        self.lost += len(sites)
        for site in sites:
            self.gone.setdefault(site, self.rounds)

    def record_metrics(self, results: list[FLModel]) -> None:
        """Record the metrics of honest sites, weighted by their numbers of examples: they are of the model that was sent."""
        sums: dict[str, float] = {}
        total = 0.0
        for result in results:
            told = {name: float(value) for name, value in (result.metrics or {}).items() if _is_number(value)}
            if told and site_of(result) not in self.malicious:
                weight = claim_of(result) or 1.0
                total += weight
                sums = {name: sums.get(name, 0.0) + weight * value for name, value in told.items()}
        if total > 0 and self.rounds > 0:  # before the first round the model is the initial one
            self.curve.append((self.rounds, {name: value / total for name, value in sums.items()}))


class Guarded(FedAvg):  # type: ignore[misc]
    """FedAvg with a `JobPlace` between the results and their aggregation. `guard_controller` puts it before a job's own class.

    Results are held, so memory is n models. They are aggregated in the order of sites, so the sum does not depend on arrival.
    """

    request = ""
    _latest: Any = None  # the model after the last round

    def run(self) -> None:
        asked = json.loads(Path(self.request).read_text())
        trial = TrialRequest(**asked["asked"])
        self._place, self._held = JobPlace.of_request(trial), list[FLModel]()
        self._sent: dict[str, Any] = {}
        self._first: dict[str, Any] = {}
        self._waiting: set[str] = set()
        self._alive: set[str] = set()
        self._kind, self._claimed, self._panic = "", False, ""
        random.seed(Rng(trial.seed).child("server").entropy())  # the draw of sites
        reason = None
        try:
            self._place.meet_sites([client.name for client in self.engine.get_clients()])
            super().run()
            if self._latest is not None and not self.abort_signal.triggered:
                self._measure_last_model()
        except FedGuardError as error:
            reason = {"refused": isinstance(error, NotAllowed), "reason": str(error)}
            self.panic(str(error))
        finally:
            self._tell(Path(asked["told"]), reason)

    def panic(self, reason: str) -> Any:
        self._panic = self._panic or reason
        return super().panic(reason)

    def send_model(self, *arguments: Any, **named: Any) -> Any:
        if named.get("task_name") == self.task_name:
            self._sent = {name: _copy(value) for name, value in named["data"].params.items()}
            self._first = self._first or self._sent
            self._waiting, self._held = set(named["targets"]), []
        return super().send_model(*arguments, **named)

    def update_model(self, model: FLModel, aggr_result: FLModel) -> FLModel:
        self._latest = super().update_model(model, aggr_result)
        return self._latest

    def get_num_standing_tasks(self) -> int:
        """The number of tasks without all results; a task that only waits for dead processes is ended."""
        there = {name for child in psutil.Process().children() if (name := _site_of_process(child))}
        self._alive |= there
        if self._waiting and self._waiting <= self._alive - there:
            self.cancel_all_tasks()
        return int(super().get_num_standing_tasks())

    def _aggregate_one_result(self, result: FLModel) -> bool:
        self._waiting.discard(site_of(result))
        if not result.params:
            return bool(super()._aggregate_one_result(result))
        self._held.append(result)
        return True

    def _get_aggregated_result(self) -> FLModel:
        place = self._place
        held = sorted(self._held, key=lambda one: place.rank(site_of(one)))
        place.record_metrics(held)
        sent = {site_of(one): self._sent for one in held}
        replies = place.round(sent, [read_result(one) for one in held])
        place.record_missing(self._waiting)
        if held and not self._kind:
            self._kind = str(getattr(held[0].params_type, "value", held[0].params_type))
            self._claimed = all(claim_of(one) is not None for one in held)
        for reply in replies:
            super()._aggregate_one_result(write_result(reply))
        self._held = []
        if not replies:
            raise NotAllowed(f"round {place.rounds}: expected results of sites; none arrived.")
        return super()._get_aggregated_result()

    def _measure_last_model(self) -> None:
        """Send the last model once more, for its metrics alone: what sites report is of the model that they were sent."""
        model = self._latest
        model.current_round = self.current_round + 1
        self.send_model(
            task_name=self.task_name,
            targets=self.sample_clients(self.num_clients),
            data=model,
            callback=self._aggregate_one_result,
        )
        while self.get_num_standing_tasks() and not self.abort_signal.triggered:
            time.sleep(self._task_check_period)
        self._place.record_metrics(sorted(self._held, key=lambda one: self._place.rank(site_of(one))))

    def _tell(self, to: Path, reason: Mapping[str, Any] | None) -> None:
        """Write what the trial came to, and beside it the first model and the last."""
        place = self._place
        claims = SAMPLES if self._claimed else "equal"
        found = {
            "curve": place.curve,
            "malicious": [place.nodes.index(site) for site in sorted(place.malicious, key=place.rank)],
            "rounds": place.rounds,
            "updates": place.updates,
            "hostile_share": place.hostile_share,
            "outvoted": place.outvoted,
            "dropped": place.dropped,
            "lost": place.lost,
            "gone": {str(place.nodes.index(site)): number for site, number in place.gone.items()},
            "abandoned": place.abandoned,
            "bytes": place.bytes,
            "params_type": self._kind,
            "weights": claims + (" times aggregation_weights" if self.aggregation_weights else ""),
            "aggregator": None if self.aggregator is None else type(self.aggregator).__name__,
            "panic": self._panic or None,
            "reason": reason,
        }
        last = {} if self._latest is None else self._latest.params
        models = {f"first/{name}": value for name, value in self._first.items()}
        models |= {f"last/{name}": value for name, value in last.items()}
        with to.with_suffix(".npz").open("wb") as file:
            np.savez(file, allow_pickle=False, **{name: np.asarray(value) for name, value in models.items()})
        to.write_text(json.dumps(found))


def guard_controller(kind: type[FedAvg], request: str) -> type[FedAvg]:
    """A job's own controller with FedGuard's place in it.

    Args:
        kind: FedAvg or a subclass of it.
        request: file with the request of the trial.
    """
    bases = (Guarded,) if issubclass(Guarded, kind) else (Guarded, kind)
    return type(f"Guarded{kind.__name__}", bases, {"request": request})


def read_result(result: FLModel) -> Reply:
    """The reply in a site's result."""
    return Reply(
        site_of(result),
        result.params,
        full=result.params_type != ParamsType.DIFF,
        samples=claim_of(result),
        handle=result,
    )


def write_result(reply: Reply) -> FLModel:
    """A site's result with the arrays and the claim of a reply."""
    result: FLModel = reply.handle
    claim = claim_of(result)
    result.params = dict(reply.arrays)
    if reply.samples is not None and reply.samples != claim:
        result.meta[SAMPLES] = reply.samples
    return result


def site_of(result: FLModel) -> str:
    """The name of the site that sent a result; NVFlare's server writes it, not the site."""
    return str(result.meta["client_name"])


def claim_of(result: FLModel) -> float | None:
    """The number of examples that a site claims; None if it claims no number."""
    claim: Any = (result.meta or {}).get(SAMPLES)
    return float(claim) if _is_number(claim) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _copy(value: Any) -> Any:
    return value.clone() if hasattr(value, "clone") else np.array(value)


def _site_of_process(process: psutil.Process) -> str | None:
    """The site that a process of the simulator is; None if it is none, or has ended."""
    try:
        words = process.cmdline()
        if process.status() == psutil.STATUS_ZOMBIE or "--client" not in words:
            return None
        return words[words.index("--client") + 1]
    except psutil.Error:
        return None
