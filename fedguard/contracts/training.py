"""The training of the federation as a suite describes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fedguard.contracts.optimizers import ServerOptimizer
from fedguard.contracts.specs import Spec, name_spec

#: A number of rounds, epochs or steps. A larger one is a typing error, and its training would never end.
Many = Annotated[int, Field(ge=1, le=1_000_000)]


class Training(BaseModel):
    """How the federation trains. Parameters of the algorithm are given beside these keys.

    Args:
        algorithm: the federated algorithm: how clients train, and what the server does with their updates.
        rounds: number of rounds.
        local_epochs: passes of each client over its examples in a round; not for FedSGD, which takes a single step.
        batch_size: examples per local step; null takes all examples of the client.
        lr: learning rate of the local SGD; for FedSGD, a factor of the server's step.
        momentum: momentum of the local SGD, reset to 0 in each round; not for FedSGD.
        worker_momentum: beta of ``m <- beta m + (1 - beta) u``. Each client keeps m across rounds, and sends m instead of u.
        server_lr: learning rate of the server.
        server_momentum: mu of ``v <- mu v + aggregate``. The server adds v to the model instead of the aggregate.
        local_steps: local steps of each client in a round, instead of epochs, each on a newly drawn batch; not for FedSGD.
        server_optimizer: optimizer that moves the model, instead of server momentum.
        dtype: type of the numbers in which clients train, the server aggregates and the model is evaluated. ``float64`` takes
            the same examples and the same first model as ``float32``; messages count 4 bytes for a parameter with either.
        first_model: file with the parameters from which the training starts, instead of drawn ones: ``.npz`` or
            ``.safetensors`` with the network's parameters by name, or ``.npy`` with all of them as one vector, such as a run's
            final model. Relative to the folder in which ``fedguard`` was started; ``FILE@sha256:DIGEST`` demands its content.
            Noise for privacy hides nothing that is in it.
        statistics: what becomes of running statistics, for a network with layers that normalize over batches (BatchNorm):
            ``weighted`` by default.
        adapters: low-rank adapters beside frozen weights, and in which form they are sent: ``{form: factors, rank: 4}``. By
            default the network is trained as it is.
    """

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    algorithm: Spec = "fedavg"
    rounds: Many = 30
    local_epochs: Many = 1
    batch_size: Annotated[int, Field(ge=1)] | None = 16
    lr: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    worker_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    server_lr: Annotated[float, Field(gt=0)] = 1.0
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    local_steps: Many | None = None
    server_optimizer: ServerOptimizer | None = None
    dtype: Literal["float32", "float64"] = "float32"
    first_model: str | None = None
    statistics: Spec | None = None
    adapters: Spec | None = None

    @field_validator("statistics", "adapters", mode="before")
    @classmethod
    def _name_the_spec(cls, given: Any) -> Any:
        return name_spec(given)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for one, other in (("local_steps", "local_epochs"), ("server_optimizer", "server_momentum")):
            if getattr(self, one) and getattr(self, other) != type(self).model_fields[other].default:
                raise ValueError(f"{one} replaces {other}; expected one of them; got both")
        return self

    @property
    def own(self) -> dict[str, Any]:
        """The parameters beside the keys that every algorithm has."""
        return self.model_extra or {}
