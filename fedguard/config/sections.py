"""The sections of a cell's settings: task, clients, training, protocol, threat, observer, server, evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from fedguard.contracts import (
    Seating,
)
from fedguard.contracts.specs import Spec, name_spec
from fedguard.rng import MOST_SEED

Count = Annotated[int, Field(strict=True, ge=0, le=MOST_SEED)]


class Section(BaseModel):
    """A part of a suite; an unknown key in it is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, ser_json_inf_nan="constants")


class Subset(Section):
    """Number of examples that each trial draws from the data.

    Args:
        train: train examples; null takes all.
        test: test examples; null takes all.
    """

    train: Annotated[int, Field(strict=True, ge=1, le=MOST_SEED)] | None = None
    test: Annotated[int, Field(strict=True, ge=1, le=MOST_SEED)] | None = None


class TaskSection(Section):
    """What is learned, and how the examples are divided among the clients.

    Args:
        data: the data set.
        model: the model that is trained.
        partition: how the training examples are divided among the clients.
        partition_seed: seed of the partition, the same for all trials; null draws a new partition for each seed.
        partition_among: clients among which the examples are divided. With ``all``, malicious clients get shares too, which are
            lost where they send nothing trained on them. With ``honest``, each malicious client holds a copy of an honest
            client's examples.
        shared: fraction of the training examples that is public. No client gets them as its share; each client, malicious or
            not, holds a copy of all of them beside its own examples (Zhao et al., 2018).
        subset: number of examples that are drawn from the data, without replacement, before they are divided among the clients:
            ``{train: 6000, test: 1000}``. Each partition draws its own.
    """

    data: Spec = "digits"
    model: Spec = "softmax"
    partition: Spec = "iid"
    partition_seed: Count | None = None
    partition_among: Literal["all", "honest"] = "all"
    shared: Annotated[float, Field(ge=0, lt=1)] = 0.0
    subset: Subset = Subset()


class ObserverSection(Section):
    """The adversary that infers the clients' data: the server, or nodes of a training without a server.

    Args:
        server: ``curious`` follows the protocol; ``malicious`` may also send a different model.
        round: the round (from 1) that an attack on a single round watches.
        victims: number of clients that are attacked, each on its own.
        labels: whether the attack knows the labels of the examples that it attacks.
        candidates: limit of a membership inference attack: the most members, and the most nonmembers, that it classifies.
        seat: who observes: the ``server``, or ``nodes`` that pool the messages they receive. ``nodes`` are drawn at random,
            ``side_by_side`` are a drawn node and its nearest ones, and ``around`` are the nodes nearest to a drawn one.
        nodes: number of observing nodes.
        listens: number of rounds after the watched one in which nodes continue to receive messages.
    """

    server: Literal["curious", "malicious"] = "curious"
    round: Annotated[int, Field(strict=True, ge=1)] = 1
    victims: Annotated[int, Field(strict=True, ge=1)] = 4
    labels: bool = False
    candidates: Annotated[int, Field(strict=True, ge=2)] = 1000
    seat: Seating = "server"
    nodes: Annotated[int, Field(strict=True, ge=1)] = 1
    listens: Count = 1

    def spec(self) -> dict[str, Any]:
        """Part of a cell's identity. The keys of observing nodes are left out if the server observes."""
        return self.model_dump(exclude={"seat", "nodes", "listens"} if self.seat == "server" else None)


class ServerSection(Section):
    """What only the server has.

    Args:
        root_data: number of clean examples for rules such as fltrust. They belong to no client and are not used for testing.
    """

    root_data: Count = 0


class EvaluationSection(Section):
    """When the model is evaluated. The last round always is.

    Args:
        every: rounds between evaluations. The final accuracy is the mean of the last five.
        seconds: simulated seconds between evaluations, instead of rounds.
        until: simulated seconds after which the training ends; ``training.rounds`` is then an upper bound.
        evasion: an attack at test time on the final model of each cell, such as ``pgd``.
        weight_breakdown: whether each record says which sites of unequal weight can together move the rule's aggregate without
            bound, and how far each can alone.
        statistics: fates of running statistics with which the model is evaluated as well, beside ``training.statistics``.
    """

    every: Annotated[int, Field(strict=True, ge=1)] = 1
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    until: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    evasion: Spec | None = None
    weight_breakdown: bool = False
    statistics: tuple[Spec, ...] = ()

    @field_validator("statistics", mode="before")
    @classmethod
    def _fates_have_names(cls, given: Any) -> Any:
        """``{fate: weighted, ...}`` is ``{name: weighted, ...}``."""
        return [name_spec(one) for one in given] if isinstance(given, list | tuple) else given

    @property
    def in_time(self) -> bool:
        """Whether simulated time decides when the model is evaluated."""
        return self.seconds is not None or self.until is not None

    @property
    def spec(self) -> dict[str, Any]:
        """Part of a cell's identity: when the model is evaluated, and what else is."""
        asked = {"weight_breakdown": True} if self.weight_breakdown else {}
        return {"every": self.every} | self.model_dump(include={"seconds", "until"}, exclude_none=True) | asked

    @model_validator(mode="after")
    def _consistent(self) -> EvaluationSection:
        if self.seconds is not None and self.every != 1:
            raise ValueError("seconds replaces every; expected one of them; got both")
        return self
