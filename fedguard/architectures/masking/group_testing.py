"""Group testing: overlapping group sums tell whom to leave out of the sum (FedGT, Xhemrishi et al., IEEE TIFS 2025)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedguard.architectures.masking.contract import Masking, Received
from fedguard.architectures.masking.decoding import Matrix, design, posterior, smallest_combination, smallest_of_design
from fedguard.architectures.masking.sessions import Session, Sessions, joined, received
from fedguard.architectures.root import root_loss
from fedguard.architectures.wire import Sent
from fedguard.contracts import GroupTesting, SessionSize, Setup
from fedguard.errors import require


class GroupTester(Masking):
    """One session for each overlapping group in the round of the test, and in each other round one of those not suspected.

    A group's score is how much its mean lowers the loss on the server's clean data; it is suspected if that is less than
    ``margin`` times what the best group's does. A client is left out, from the next round on, if it is more likely malicious
    than not, given all tests and the share of malicious clients that the server is told. In the round of the test the row is
    the mean of the groups that are not suspected: a further sum without the suspects would, taken from the sum of all
    groups, leave their own updates bare.

    The source scores by accuracy, designs its groups by codes, and chooses its rule for clients by an error rate.

    Raises:
        ConfigError: the sums of the groups can be combined into one over too few clients.
    """

    def __init__(self, setup: Setup, plan: GroupTesting) -> None:
        super().__init__(setup)
        self._plan, self._suspects = plan, frozenset[int]()
        n, colluders = setup.participation.total, setup.protocol.colluders(setup.participation.total)
        groups = design(n, plan.tests, plan.memberships)
        hidden_among = smallest_of_design(n, plan.tests, plan.memberships) - colluders
        require(
            hidden_among >= 2,
            f"group_testing: the sums of {plan.tests} groups, each of {n} clients in {plan.memberships} of them, can be "
            f"combined into one over {hidden_among + colluders} clients, of whom {colluders} may collude with the server; "
            "expected at least 2 others. Lower tests or colluding.",
        )
        self._groups = groups[:, setup.rng.child("groups").numpy().permutation(n)]
        sizes = groups.sum(axis=1)
        self._tests = Sessions(setup, SessionSize(int(sizes.min()), int(sizes.max()), colluders, honest=0))
        self._rest = Sessions(setup, setup.protocol.session(n, n, len(setup.hostile)))

    def receive(self, sent: Sent) -> Received:
        if sent.round == self._plan.round:
            return self._test(sent)
        rest = [client for client in sent.clients if client not in self._suspects]
        excluded = tuple(sorted(self._suspects & set(sent.wire.clients)))
        return received(self.setup, sent, [self._rest.run(sent, rest, "all")], excluded=excluded)

    def _test(self, sent: Sent) -> Received:
        """Run the groups' sessions, decide whom to leave out, and go on with the groups that are not suspected."""
        ran = []
        for number, group in enumerate(self._groups):
            members = [client for client in sent.clients if group[client]]
            ran.append(self._tests.run(sent, members, f"test {number}"))
        tests = [test for test in ran if test.mean is not None]
        if not tests:
            return received(self.setup, sent, [], ran=ran)
        suspected, sums = self._suspected(sent, tests), self._sums(tests)
        prevalence = self.setup.told / self.setup.participation.total
        self._suspects = frozenset(np.flatnonzero(posterior(sums, suspected, prevalence) > 0.5).tolist())
        trusted = [test for test, out in zip(tests, suspected, strict=True) if not out]
        heard = set(np.flatnonzero(sums[~suspected].any(axis=0)).tolist())
        return received(
            self.setup,
            sent,
            [joined(trusted)] if trusted else [],
            ran=ran,
            excluded=tuple(sorted(set(np.flatnonzero(sums.any(axis=0)).tolist()) - heard)),
            anonymity=smallest_combination(sums) - self.setup.protocol.colluders(len(sent.clients)),
        )

    def _suspected(self, sent: Sent, tests: Sequence[Session]) -> Matrix:
        """bool ``[tests]``: whose step gains too little on the server's data."""
        step, before = self.setup.training.server_step, root_loss(self.setup, sent.model)
        moved = [sent.model + step * test.mean for test in tests if test.mean is not None]
        gains = np.array([before - root_loss(self.setup, model) for model in moved])
        return np.asarray(gains < self._plan.margin * gains.max())

    def _sums(self, tests: Sequence[Session]) -> Matrix:
        """bool ``[tests, clients]``: who is in which sum."""
        matrix = np.zeros((len(tests), self.setup.participation.total), bool)
        for row, test in enumerate(tests):
            matrix[row, list(test.included)] = True
        return matrix
