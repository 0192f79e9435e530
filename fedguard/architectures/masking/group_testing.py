"""Group testing: overlapping group sums tell whom to leave out of the sum (FedGT, Xhemrishi et al., IEEE TIFS 2025)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Lt

from fedguard.architectures.masking.decoding import Matrix, design, posterior, smallest_combination, smallest_of_design
from fedguard.architectures.masking.full import FullMasking
from fedguard.architectures.masking.sessions import SessionResult, SessionRunner, merge_sessions, receive_sums
from fedguard.architectures.root import root_loss
from fedguard.contracts import (
    MASKED_SUM,
    SINGLE_UPDATES,
    Cell,
    Masking,
    ReceivedRound,
    Receiver,
    SentRound,
    SessionSize,
    Setup,
    Sight,
)
from fedguard.contracts.ranges import PositiveInt, ProperFraction
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class GroupTesting(Masking):
    """In one round the server scores overlapping groups, and from then on leaves out whom it takes to be malicious.

    The score of a group is the decrease in loss on the server's clean data by a step along its mean; a group is suspected if
    its score is below ``margin`` times the best score. From the next round on, a client is left out if it is more likely
    malicious than not, given all tests and the assumed share of malicious clients. In the round of the test the row is the
    mean of the groups that are not suspected: a further sum without the suspects, subtracted from the sum of all groups,
    would reveal the suspects' own updates.

    The source scores by accuracy, designs its groups by codes, and chooses its rule for clients by an error rate.

    Args:
        tests: T, the number of overlapping groups.
        memberships: number of groups that each client is in.
        round: the round (from 1) in which the clients are tested.
        margin: a group is suspected if its step gains less than this share of the best gain, on the server's clean data.
    """

    name = "group_testing"
    source = "Xhemrishi et al., FedGT: Identification of Malicious Clients in Federated Learning, IEEE TIFS 2025"
    needs = (Sight.ROOT_DATA,)
    hides = SINGLE_UPDATES
    shows = MASKED_SUM | Sight.GROUP_SUMS
    kept_from_rules = Sight.GROUP_SUMS
    overlapping = True
    words = (
        "The server sees the sums of overlapping groups in one round, scores them on its clean data, and from then on sees one "
        "sum without those whom it suspects; its rule gets one mean; nobody sees another's update."
    )
    cost = "in the round of the test, as many masked vectors as each client is in groups; else as full"

    tests: Annotated[int, Ge(2), Lt(15)] = 10
    memberships: PositiveInt = 2
    round: PositiveInt = 1
    margin: ProperFraction = 0.6

    @property
    def undefended(self) -> Masking:
        return FullMasking()

    def check(self, cell: Cell) -> None:
        clients, rounds = cell.clients, cell.training.rounds
        require(
            self.memberships < self.tests,
            f"memberships: expected fewer than tests = {self.tests}, for a client in every group tells nothing; "
            f"got {self.memberships}.",
        )
        require(self.round <= rounds, f"round: expected at most training.rounds = {rounds}; got {self.round}.")
        require(
            clients.expected == clients.total,
            f"group_testing: each client is tested once, so all take part in each round; got {clients.expected} of "
            f"{clients.total}. Set clients.per_round: 1.0.",
        )

    def reasons(self, server: Sight) -> Iterator[str]:
        if Sight.ROOT_DATA not in server:
            yield "group_testing scores groups on clean data at the server: give it some with server.root_data."

    def smallest_sum(self, cell: Cell) -> int:
        return smallest_of_design(cell.clients.total, self.tests, self.memberships)

    def receiver(self, setup: Setup) -> Receiver:
        return GroupTester(setup, self)


class GroupTester(Receiver):
    """One session for each overlapping group in the round of the test, and one of clients not suspected in any other round.

    Raises:
        ConfigError: the sums of the groups can be combined into one over too few clients.
    """

    def __init__(self, setup: Setup, plan: GroupTesting) -> None:
        super().__init__(setup)
        self._plan, self._suspects = plan, frozenset[int]()
        n, colluders = setup.cell.clients.total, setup.cell.protocol.colluders(setup.cell.clients.total)
        hidden_among = plan.smallest_sum(setup.cell) - colluders
        require(
            hidden_among >= 2,
            f"group_testing: the sums of {plan.tests} groups, each of {n} clients in {plan.memberships} of them, can be "
            f"combined into one over {hidden_among + colluders} clients, of whom {colluders} may collude with the server; "
            "expected at least 2 others. Lower tests or colluding.",
        )
        groups = design(n, plan.tests, plan.memberships)
        self._groups = groups[:, setup.rng.child("groups").numpy().permutation(n)]
        sizes = groups.sum(axis=1)
        self._tests = SessionRunner(setup, SessionSize(int(sizes.min()), int(sizes.max()), colluders, honest=0))
        self._rest = SessionRunner(setup, setup.cell.session(n, n, len(setup.malicious)))

    def receive(self, sent: SentRound) -> ReceivedRound:
        if sent.round == self._plan.round:
            return self._test(sent)
        rest = [client for client in sent.clients if client not in self._suspects]
        excluded = tuple(sorted(self._suspects & set(sent.senders)))
        return receive_sums(self.setup, sent, [self._rest.run(sent, rest, "all")], excluded=excluded)

    def _test(self, sent: SentRound) -> ReceivedRound:
        """Run the groups' sessions, decide which clients to leave out, and use the groups that are not suspected."""
        ran = []
        for number, group in enumerate(self._groups):
            members = [client for client in sent.clients if group[client]]
            ran.append(self._tests.run(sent, members, f"test {number}"))
        tests = [test for test in ran if test.mean is not None]
        if not tests:
            return receive_sums(self.setup, sent, [], ran=ran)
        suspected, sums = self._suspect_tests(sent, tests), self._sums(tests)
        prevalence = self.setup.cell.assumed_f / self.setup.cell.clients.total
        self._suspects = frozenset(np.flatnonzero(posterior(sums, suspected, prevalence) > 0.5).tolist())
        trusted = [test for test, out in zip(tests, suspected, strict=True) if not out]
        heard = set(np.flatnonzero(sums[~suspected].any(axis=0)).tolist())
        return receive_sums(
            self.setup,
            sent,
            [merge_sessions(trusted)] if trusted else [],
            ran=ran,
            excluded=tuple(sorted(set(np.flatnonzero(sums.any(axis=0)).tolist()) - heard)),
            anonymity=smallest_combination(sums) - self.setup.cell.protocol.colluders(len(sent.clients)),
        )

    def _suspect_tests(self, sent: SentRound, tests: Sequence[SessionResult]) -> Matrix:
        """bool ``[tests]``: whether the step of a group gains too little on the server's data."""
        step, before = self.setup.cell.server_step, root_loss(self.setup, sent.model)
        moved = [sent.model + step * test.mean for test in tests if test.mean is not None]
        gains = np.array([before - root_loss(self.setup, model) for model in moved])
        return np.asarray(gains < self._plan.margin * gains.max())

    def _sums(self, tests: Sequence[SessionResult]) -> Matrix:
        """bool ``[tests, clients]``: which clients are in which sum."""
        matrix = np.zeros((len(tests), self.setup.cell.clients.total), bool)
        for row, test in enumerate(tests):
            matrix[row, list(test.included)] = True
        return matrix
