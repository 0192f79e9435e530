"""Kardam (Damaskinos et al., ICML 2018)."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import Gram, NonNegativeFloat, RuleContext, Sight, State, WeightRule


@dataclass(frozen=True, kw_only=True)
class Kardam(WeightRule):
    """Takes no update that changes faster than most others do.

    Updates are filtered in the order of their arrival. With $u$ and $w$ a client's update and the model it was trained from,
    and $u'$ and $w'$ the client's previous ones, its coefficient is $k = |u - u'| / |w - w'|$. An update passes if
    (1) k is at most the $(n - f)/n$ quantile of the last coefficients of all clients, of which $f$ of $n$ are malicious; and
    (2) none of the last $2 f$ updates that passed is by the same client, so among $2 f + 1$ in a row at most f are malicious.
    Updates that pass weigh $a_i = exp(-alpha s)$ with s their staleness, others 0. A rejected update does not move the model,
    and so adds to no client's staleness. $R(x) = (1/m) sum_i a_i x_i$ over the m updates of an aggregate.

    A client's first update has no coefficient and passes the first filter. An update from the same model as the client's last
    one is judged by the previous coefficient. So a model that has stopped can move again, but not by a rejected client. The
    quantile is the $ceil((n - f) m / n)$-th smallest of the m coefficients.

    The rule judges how fast an update changes, not its direction: malicious updates that change as smoothly as honest ones
    pass. It needs updates with little noise relative to the model's steps, such as full gradients.

    Args:
        alpha: decay of an update's weight per step of the model since its start; 0 for no decay.
    """

    name = "kardam"
    source = "Damaskinos et al., Asynchronous Byzantine Machine Learning (the case of SGD), ICML 2018"
    needs = (Sight.EACH_UPDATE | Sight.MODEL | Sight.TIMES,)
    by_blocks = False
    breakdown = "f < n/3 of all clients, if malicious updates change faster than honest ones"
    cost = "O(nd); the last update and model of every client are kept"
    reads_clients = True
    meets_again = True
    grid: ClassVar = {"alpha": (0.0, 0.05, 0.2)}

    alpha: NonNegativeFloat = 0.05

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        passed = _Stream(gram, context).filter_updates()
        return passed * torch.exp(-self.alpha * context.staleness.double()) / gram.n

    def remember(self, context: RuleContext, aggregate: Tensor, gram: Gram) -> State:
        # The filter advances the stream, so weights() and this method each replay it from the state before
        stream = _Stream(gram, context)
        stream.filter_updates()
        return stream.state()


class _Stream:
    """The updates of an aggregate in the order of their arrival, after all earlier ones."""

    def __init__(self, gram: Gram, context: RuleContext) -> None:
        self._context = context
        # Without the scale for their age: coefficients compare what clients sent, and the weights are Kardam's own
        self._updates = gram.vectors.double() / context.scale[:, None]
        self._f, self._n = context.federation
        state = context.state
        self._last = {name: value for name, value in state.items() if name.startswith("client ")}
        pairs = state.get("coefficients", torch.zeros(0, 2, dtype=torch.float64)).tolist()
        self._coefficients = {int(client): value for client, value in pairs}
        # For f = 0 it holds nothing, and every update passes the frequency filter
        self._recent: deque[int] = deque(state.get("passed", torch.zeros(0)).long().tolist(), maxlen=2 * self._f)

    def filter_updates(self) -> Tensor:
        """float64 ``[n]``: 1 for the updates that pass both filters, else 0."""
        found = torch.zeros(len(self._updates), dtype=torch.float64)
        for row in self._context.arrived.argsort(stable=True).tolist():
            client = self._context.clients[row]
            if self._smooth(row, client) and client not in self._recent:
                found[row] = 1
                self._recent.append(client)
        return found

    def _smooth(self, row: int, client: int) -> bool:
        """The Lipschitz filter."""
        now = torch.stack([self._updates[row], self._context.starts[row].double()])
        before = self._last.get(f"client {client}")
        # Even if it is rejected: the coefficient is about consecutive updates of a client, whether they passed or not
        self._last[f"client {client}"] = now
        if before is None:
            return True
        changed, moved = (now - before).norm(dim=1).tolist()
        if moved > 0:
            self._coefficients[client] = changed / moved
        if client not in self._coefficients:
            return True
        known = sorted(self._coefficients.values())
        most = math.ceil((self._n - self._f) * len(known) / self._n)
        return bool(self._coefficients[client] <= known[max(most, 1) - 1])

    def state(self) -> dict[str, Tensor]:
        """Update and model of each client (float64 ``[2, d]``), coefficients, and clients of the last accepted updates."""
        return {
            **self._last,
            "coefficients": torch.tensor(list(self._coefficients.items()), dtype=torch.float64).reshape(-1, 2),
            "passed": torch.tensor(list(self._recent), dtype=torch.int64),
        }
