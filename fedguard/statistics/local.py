"""Running statistics that each client keeps for itself."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import StatisticsFate


@dataclass(frozen=True, kw_only=True)
class Local(StatisticsFate):
    """Each client keeps its running statistics for itself, from round to round; nobody sends any.

    Weights and biases of the normalizing layers are shared (SiloBN); ``training.algorithm: fedbn`` keeps these at the clients,
    too. There is no global model that could be evaluated: it is evaluated at each honest client with that client's statistics,
    on test examples weighed by the client's shares of the labels. Accuracy is the mean over these clients; a record has the
    mean accuracy on all test examples and the worst client's beside it.
    """

    name = "local"
    source = "Andreux et al., Siloed Federated Learning for Multi-Centric Histopathology Datasets, DCL 2020"
    words = (
        "each client keeps its statistics for itself, and accuracy is the mean over honest clients of what the model with the "
        "client's own statistics does on test examples weighed by the client's shares of the labels"
    )
    local = True
