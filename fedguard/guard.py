"""A training loop of your own, attacked and defended where it aggregates.

guard = fg.Guard(attack="ipm(tau=5)", defense="nnm >> trimmed_mean", f=2)
model = guard.step(model, clients)     # once a round: the global state dict and those of the clients in, the next one out
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor

from fedguard.aggregation import KnownPipeline, aggregate
from fedguard.arguments import malicious_clients, of_kind, real_number, whole_number, words
from fedguard.config.apps import acts_elsewhere
from fedguard.contracts import (
    Algorithm,
    Channel,
    Pipeline,
    PoisonAttack,
    PoisonView,
    RuleContext,
    Sight,
    State,
    StatisticsFate,
    first_met,
    needs_in_words,
)
from fedguard.contracts.channels import SAMPLES, STATISTICS
from fedguard.contracts.claims import as_claims, check_claims, counts, read_claims
from fedguard.contracts.return_checks import check_tensor_return
from fedguard.contracts.sight import Knowledge
from fedguard.errors import GuaranteeWarning, InputError, NotAllowed, PreconditionError, brief
from fedguard.guarded_statistics import (
    JOINED,
    combine_statistics,
    drop_with_statistics,
    falsify_statistics,
    goes_by_coordinates,
    read_fate,
    warn_of_share,
)
from fedguard.kernels import unusable_rows
from fedguard.registry import load_registry
from fedguard.retired import accept_retired_arguments, renew_values
from fedguard.rng import MOST_SEED, Rng
from fedguard.states import Layout, StateDict, read_state

Model = TypeVar("Model")

#: What decides the number of updates in a round of a foreign training loop: for messages
SEAT = "the number of clients"


class Guard:
    """The aggregation of a training loop, under an attack and with a defense.

    The malicious clients train honestly, and send something else. The attack is called in each round with what it may see, and
    keeps its state between rounds; so does the rule. Attacks on data or local training cannot run here: they run in a suite.

    Args:
        attack: ``"alie(z=1.5)"`` or an object; None for no attack.
        defense: ``"nnm >> trimmed_mean"`` or an object.
        f: number of malicious clients: the first f of a round, or those that `step` names.
        assumed_f: number of malicious updates that the rule assumes; f by default.
        knowledge: what the malicious clients see, as in a suite's ``threat.knowledge``.
        seed: seed of all draws of attack and rule.
        server_lr: factor of the aggregate before it is added to the model.
        statistics: what becomes of the running statistics of normalizing layers: ``"weighted"``, ``"average"`` or ``"pooled"``
            as in a suite's ``training.statistics``, perhaps with a rule of their own (``"weighted(rule='median')"`` or
            ``{"fate": "weighted", "rule": "median"}``), or ``"joined"``: for rule and attack they are coordinates of the update
            like any other.

    Attributes:
        round: rounds so far.
        floored: number of variances below 0 that clients have sent, and that were taken for 0.
        dropped: number of updates that reached no rule, because they were not finite or had no valid number of examples.
        seat: what decides the number of updates, for messages.

    Raises:
        InputError: f, assumed_f, seed or server_lr have a wrong type or are out of range.
        ConfigError: an unknown attack, rule or parameter.
        NotAllowed: attack or rule need something that does not exist here.
    """

    @accept_retired_arguments
    def __init__(
        self,
        *,
        attack: str | PoisonAttack | None = None,
        defense: str | Pipeline = "mean",
        f: int = 0,
        assumed_f: int | None = None,
        knowledge: Sequence[str] = get_args(Knowledge),
        seed: int = 0,
        server_lr: float = 1.0,
        statistics: str | Mapping[str, Any] | StatisticsFate = JOINED,
    ) -> None:
        self.f = malicious_clients(f, "f", 0)
        self.assumed_f = self.f if assumed_f is None else malicious_clients(assumed_f, "assumed_f", 0)
        self._decides = "f" if assumed_f is None else "assumed_f"
        self.round = self.dropped = self.floored = 0
        self.seat = SEAT
        knowledge = renew_values("threat.knowledge", words(knowledge, "knowledge"))
        if unknown := sorted(set(knowledge) - set(get_args(Knowledge))):
            raise InputError(f"knowledge: expected some of {', '.join(get_args(Knowledge))}; got {', '.join(unknown)}.")
        known = load_registry()
        self._pipeline = known.pipeline(defense)
        self._fate = read_fate(statistics)
        self._attack, self._sees = attack_at(attack, Sight.parse(knowledge), (STATISTICS,) if self._fate else ())
        self._grants, self._rng = Sight.parse(knowledge), Rng(whole_number(seed, "seed", 0, MOST_SEED))
        self._server_lr = real_number(server_lr, "server_lr")
        self._attack_state: State = {}
        self._states: tuple[State, ...] = ()
        self._layout: Layout | None = None
        self._warned = False

    @property
    def attacks(self) -> bool:
        """Whether there is an attack."""
        return self._attack is not None

    @property
    def weighs(self) -> bool:
        """Whether the claimed numbers of examples matter: the rule uses them, or the attack lies about them."""
        return self._pipeline.rule.by_samples or (self._attack is not None and SAMPLES in self._attack.lies)

    def __repr__(self) -> str:
        assumed = f"f={self.f}, assumed_f={self.assumed_f}"
        return f"Guard(attack={self._attack}, defense={self._pipeline}, {assumed}, round={self.round})"

    def step(
        self,
        model: Model,
        clients: Sequence[Any],
        *,
        malicious: Sequence[int] | None = None,
        samples: Sequence[float] | None = None,
        root: Model | None = None,
    ) -> Model:
        """Run one round: replace the malicious clients' models, and aggregate all to the next model.

        Args:
            model: before the round: a state dict of tensors or numpy arrays, or a float32 vector ``[d]``. Entries that are not
                floats do not change.
            clients: the model of each client after its local training, each in the form of ``model``, or the path of a
                safetensors file.
            malicious: indices of the malicious ones among ``clients``; the first f by default.
            samples: number of examples that each client claims, for rules that weigh by it. A client with a number that is NaN,
                infinite or below 0 is dropped like one with an update that is not finite.
            root: the server's model after training on clean data of its own, in the form of ``model``, for rules such as
                fltrust.

        Returns:
            the next model, in the form of ``model``.

        Raises:
            InputError: models that do not fit each other, or a next model that their type cannot hold; samples that are not one
                number for each client, or all 0.
            PreconditionError: too few updates for the rule, or too many malicious ones.
            NotAllowed: the rule needs something that was not given, such as ``root``.
        """
        plain = not isinstance(model, Mapping | str | Path)
        state = {"model": model} if plain else read_state(model, "model")
        if state is None:
            raise InputError(f"model: expected a state dict or a vector; got {type(model).__name__}.")
        if not isinstance(clients, Sequence | Tensor | np.ndarray) or isinstance(clients, str):
            raise InputError(f"clients: expected a list of models; got {type(clients).__name__}.")
        # Later rounds have the layout of the first, to which the states of rule and attack belong
        self._layout = self._layout or Layout.of(state, "model")
        layout, own = self.split(self._layout)
        before = layout.vector(state, "model")
        if not bool(before.isfinite().all()):
            raise InputError(
                "model: expected finite numbers; it holds NaN, infinity or values that float32 does not hold. The training has "
                "diverged: lower its step."
            )

        def read_model(value: Any, what: str) -> StateDict:
            one = {"model": value} if plain else read_state(value, what)
            if one is None:
                raise InputError(f"{what}: expected a state dict; got {type(value).__name__}.")
            return one

        if not len(clients):
            raise InputError("clients: expected one model or more; got none.")
        claims = None if samples is None else read_claims(samples, len(clients))
        # check_claims raises here, because weights of zero have no mean; single invalid claims are dropped later
        if claims is not None and not any(claims):
            check_claims(claims, len(clients))
        names = [f"clients[{number}]" for number in range(len(clients))]
        read = [read_model(client, name) for client, name in zip(clients, names, strict=True)]
        rows = torch.stack([layout.vector(one, name) for one, name in zip(read, names, strict=True)]) - before
        if self._fate is None and self.round == 0 and not goes_by_coordinates(self._pipeline):
            warn_of_share(layout, rows)
        direction = None if root is None else layout.vector(read_model(root, "root"), "root") - before
        if direction is not None and not bool(direction.isfinite().all()):
            raise InputError("root: expected finite numbers; it holds NaN or infinity.")
        if malicious is None and self.f >= len(clients):
            raise InputError(
                f"f: expected fewer than the {len(clients)} clients of the round; got {self.f}. Lower f, or pass more clients."
            )
        acting = tuple(range(self.f)) if malicious is None else malicious
        beside = None
        if own is not None:
            beside = torch.stack([own.vector(one, name) for one, name in zip(read, names, strict=True)])
            # A client whose statistics are not finite is dropped with its update, which no attack sees then
            rows = drop_with_statistics(rows, beside)
        rows, claims = self.apply_attack(before, rows, acting, layers=layout.sizes, samples=claims)
        if own is not None and beside is not None:
            beside = falsify_statistics(self._attack, beside, _rows(acting, len(beside), self.f), own)
            rows = drop_with_statistics(rows, beside)
        result = self.aggregate_updates(before, rows, layers=layout.sizes, samples=claims, root=direction)
        after = layout.state(before + self._server_lr * result, state, "the next model")
        if own is not None and beside is not None:
            after = own.state(self.aggregate_statistics(rows, beside, own, samples=claims), after, "the next model")
        return after["model"] if plain else after  # type: ignore[return-value]

    def apply_attack(
        self,
        model: Tensor,
        updates: Tensor,
        malicious: Sequence[int],
        *,
        layers: Sequence[int] = (),
        samples: Sequence[float] | None = None,
    ) -> tuple[Tensor, tuple[float, ...] | None]:
        """The updates that reach the server in the next round, and the numbers of examples that clients claim.

        Args:
            model: float32 ``[d]``.
            updates: float32 ``[n, d]``, the result of each client's own training.
            malicious: rows of the malicious clients.
            layers: sizes of the model's tensors.

        Raises:
            InputError: invalid numbers of malicious rows, or more than f; no honest client.
            ContractError: the attack broke its contract.
        """
        n, d = updates.shape
        claims = None if samples is None else read_claims(samples, n)
        rows = _rows(malicious, n, self.f)
        self.round += 1
        if not rows:
            return updates, claims
        # The server drops these updates, so they are no part of the round that the attack sees
        bad = set(unusable_rows(updates))
        honest = tuple(row for row in range(n) if row not in rows and row not in bad)
        if not any(claims is None or counts(claims[row]) for row in honest):
            warnings.warn(
                f"round {self.round}: none of the {n - len(rows)} honest updates is left: they hold NaN, infinity or values "
                "beyond 2^112, or claim numbers of examples that are none. What is aggregated is the malicious clients' alone.",
                GuaranteeWarning,
                stacklevel=3,
            )
        if self._attack is None:
            return updates, claims
        good = updates[list(honest)]
        view = PoisonView.of_round(
            self._attack,
            self._sees,
            round=self.round,
            malicious=rows,
            layers=layers,
            server_lr=self._server_lr,
            # Apart, so that an attack cannot derive the rule's random draws from its own stream
            rng=self._rng.child("attack", self.round).apart(),
            state=self._attack_state,
            honest=good,
            honest_clients=honest,
            own=updates[list(rows)].clone(),
            model=model.clone(),
            rule=self._copy_rule(model, len(good), layers) if Sight.RULE in self._sees else None,
        )
        crafted = check_tensor_return(self._attack, "craft", self._attack.craft(view), (len(rows), d))
        self._attack_state = self._attack.remember(view, crafted)
        updates = updates.clone()
        updates[list(rows)] = crafted
        if claims is None:
            return updates, None
        return updates, tuple(
            falsify_claim(self._attack, claim) if row in rows else claim for row, claim in enumerate(claims)
        )

    def aggregate_updates(
        self,
        model: Tensor,
        updates: Tensor,
        *,
        layers: Sequence[int] = (),
        samples: Sequence[float] | None = None,
        root: Tensor | None = None,
        clients: Sequence[int] | None = None,
    ) -> Tensor:
        """float32 ``[d]``: the rule's aggregate of a round's updates (float32 ``[n, d]``).

        Rows that are not finite are dropped, and so are rows with an invalid number of examples.

        Args:
            samples: what the clients claim, as in `step`.
            clients: the client behind each row, for rules that remember clients; the row's number by default.

        Raises:
            PreconditionError: too few updates for the rule, or too many malicious ones.
            NotAllowed: the rule needs something that was not given.
        """
        claims = [1.0] * len(updates) if samples is None else read_claims(samples, len(updates))
        bad = self._find_unusable(updates, claims)
        lost = len(bad)
        self.dropped += lost
        kept = [row for row in range(len(updates)) if row not in bad]
        rows = updates[kept] if lost else updates
        who = list(range(len(updates))) if clients is None else list(clients)
        # Honest updates are taken to be finite, so each dropped row counts as one of the malicious ones that the rule assumes
        assumed_f = max(0, min(self.assumed_f - lost, len(rows) - 1))
        if not kept:
            raise PreconditionError(
                f"round {self.round}: none of {lost} updates is left: they hold NaN, infinity or values beyond 2^112, or claim "
                "numbers of examples that are none. Lower the clients' step, or look at their data."
            )
        try:
            self._pipeline.check(len(rows), assumed_f, self.seat)
        except PreconditionError as error:
            raise PreconditionError(self._name_arguments(str(error))) from None
        if not self._warned:
            self._warned = True
            for line in self._pipeline.unproven(len(rows), assumed_f, self.seat):
                warnings.warn(self._name_arguments(line), GuaranteeWarning, stacklevel=3)
        context = RuleContext(
            "fedguard.Guard",
            Sight.EACH_UPDATE | Sight.MODEL | (Sight.NOTHING if root is None else Sight.ROOT_DATA),
            f=assumed_f,
            round=self.round,
            rng=self._rng.child("rule", self.round),
            layers=tuple(layers) or (rows.shape[1],),
            server_lr=self._server_lr,
            clients=tuple(who[row] for row in kept),
            samples=as_claims(claims[row] for row in kept),
            root=root,
            model=model,
        )
        result = aggregate(self._pipeline, rows, context, self._states)
        self._states = result.states
        return result.vector

    def split(self, layout: Layout) -> tuple[Layout, Layout | None]:
        """What rule and attack see of a model, and the running statistics that are aggregated beside it."""
        return (layout, None) if self._fate is None else layout.split()

    def aggregate_statistics(
        self, updates: Tensor, sent: Tensor, own: Layout, *, samples: Sequence[float] | None = None
    ) -> Tensor:
        """float32 ``[s]``: the next running statistics, of those clients whose update is aggregated.

        Args:
            updates: float32 ``[n, d]``; a row that is not finite is dropped, and its statistics with it.
            sent: float32 ``[n, s]``.
            own: their layout, as `split` returns it.
            samples: what the clients claim, as in `step`.

        Raises:
            PreconditionError: too few clients for the fate's rule.
        """
        assert self._fate is not None
        bad = self._find_unusable(updates, samples)
        kept = [row for row in range(len(updates)) if row not in bad]
        claims = None if samples is None else [samples[row] for row in kept]
        rng, assumed_f = self._rng.child("statistics rule", self.round), max(0, self.assumed_f - len(bad))
        found, floored = combine_statistics(self._fate, sent[kept], claims, own, assumed_f, self.round, rng)
        self.floored += floored
        return found

    @staticmethod
    def _find_unusable(updates: Tensor, claims: Sequence[float] | None) -> set[int]:
        """The rows that are dropped: not finite, or with a number of examples that is none."""
        return {*unusable_rows(updates), *(row for row, claim in enumerate(claims or ()) if not counts(claim))}

    def _name_arguments(self, message: str) -> str:
        """A message about a round with the argument that decides what the rule assumes."""
        return message.replace("Lower f ", f"Lower {self._decides} ")

    def _copy_rule(self, model: Tensor, benign: int, layers: Sequence[int]) -> KnownPipeline:
        """The malicious clients' copy of the rule, with their own guesses of its draws and of the server's clean data."""
        seen_all = Sight.HONEST_UPDATES in self._grants
        known = model.clone() if Sight.MODEL in self._grants else torch.zeros_like(model)
        assumed_f, rng, round, server_lr = (
            self.assumed_f,
            self._rng.child("attack", "rule", self.round).apart(),
            self.round,
            self._server_lr,
        )

        def context(n: int, rows: Tensor) -> RuleContext:
            return RuleContext(
                "the malicious clients' copy of the rule",
                Sight.EACH_UPDATE | Sight.MODEL | Sight.ROOT_DATA,
                f=min(assumed_f, n - 1),
                round=round,
                rng=rng,
                layers=tuple(layers) or (rows.shape[1],),
                server_lr=server_lr,
                clients=tuple(range(n)),
                samples=torch.ones(n, dtype=torch.float64),
                root=rows[:benign].mean(0) if benign else torch.zeros_like(rows[0]),
                model=known,
            )

        # The rule's state follows from all earlier updates, so only attackers that saw all of them know it
        return KnownPipeline(self._pipeline, context, self._states if seen_all else ())


def _rows(malicious: Any, n: int, f: int) -> tuple[int, ...]:
    """The rows of the malicious clients, each once.

    Raises:
        InputError: invalid row numbers, more than f of them, or all.
    """
    listed = malicious.tolist() if isinstance(malicious, Tensor | np.ndarray) else malicious
    if not isinstance(listed, Iterable) or isinstance(listed, str):
        raise InputError(f"malicious: expected a list of rows from 0 to {n - 1}; got {brief(malicious)}.")
    rows = tuple(dict.fromkeys(whole_number(row, "malicious", 0) for row in listed))
    if any(row >= n for row in rows) or len(rows) > f or (rows and len(rows) == n):
        raise InputError(
            f"malicious: expected at most f = {f} of {n} rows, not all of them, from 0 to {n - 1}; got {list(rows)}."
        )
    return rows


def falsify_claim(attack: PoisonAttack, claim: float) -> float:
    """The number of examples that a malicious client claims instead of its own; 0 and invalid claims are left unchanged.

    Raises:
        ContractError: the attack claims no valid number.
    """
    if not counts(claim) or claim == 0:
        return claim
    whole = max(1, round(claim))
    return claim * (attack.report(SAMPLES, whole) / whole)


def attack_at(
    attack: str | PoisonAttack | None, granted: Sight, sent: Collection[Channel[Any, ...]] = ()
) -> tuple[PoisonAttack | None, Sight]:
    """The attack, and what it sees.

    Args:
        sent: channels on which clients send something beside their updates.

    Raises:
        NotAllowed: it acts where a foreign training loop lets no attack act, or needs more than it is granted.
    """
    if attack is None or (isinstance(attack, str) and attack == "none"):
        return None, Sight.NOTHING
    of_kind(attack, "attack", (str, Algorithm), "a name or an attack")
    built: Any = load_registry().build("attack", attack) if isinstance(attack, str) else attack
    if not isinstance(built, PoisonAttack):
        raise NotAllowed(f"{built.name} does not attack a training's updates. It runs in a suite: fedguard.run.")
    if STATISTICS in built.lies and STATISTICS not in sent:
        raise NotAllowed(
            f"{built.name} lies about {STATISTICS.about}, which are part of the update here. Pass statistics='weighted' to "
            "Guard."
        )
    if where := acts_elsewhere(built, sent):
        raise NotAllowed(f"{built.name} acts on {where}, before updates are there. It runs in a suite: fedguard.run.")
    sees = first_met(built.needs, granted)
    if sees is None:
        raise NotAllowed(
            f"{built.name} needs {needs_in_words(built.needs)}; the malicious clients see {granted.words()}. "
            "Grant more in knowledge."
        )
    return built, sees
