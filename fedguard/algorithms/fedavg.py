"""FedAvg: clients run SGD, and the server adds the mean of what they moved by (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import FederatedAlgorithm


@dataclass(frozen=True, kw_only=True)
class FedAvg(FederatedAlgorithm):
    """Each client runs SGD on its examples and sends what it moved by; the server adds the mean.

    A client makes ``local_epochs`` passes, or ``local_steps`` steps, of size ``lr``; the server adds ``server_lr`` times the
    aggregate.
    """

    name = "fedavg"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017"
    plain_steps = True
    only_updates = True
