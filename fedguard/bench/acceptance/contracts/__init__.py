"""The checks of a rule's contract, in the order in which they run.

answers.py     it answers every round that it accepts, with finite numbers
determinism.py the same round has the same answer, whatever ran before, elsewhere in the process or in another one
symmetry.py    neither places nor numbers of clients decide; which maps of the updates the answer follows
influence.py   whether honest clients are heard when nobody is malicious
sights.py      it sees what it declares, and runs on each alternative
tampering.py   it changes nothing of others, and reaches for nothing outside
cost.py        time and memory of a large round
recognition.py it is no better at the sizes of the evaluation than beside them
sameness.py    whether the catalog has it under another name
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedguard.bench.acceptance.case import ContractCase
from fedguard.bench.acceptance.contracts.answers import check_answers
from fedguard.bench.acceptance.contracts.cost import check_cost
from fedguard.bench.acceptance.contracts.determinism import check_determinism, check_state
from fedguard.bench.acceptance.contracts.influence import check_influence
from fedguard.bench.acceptance.contracts.recognition import check_recognition
from fedguard.bench.acceptance.contracts.sameness import check_sameness
from fedguard.bench.acceptance.contracts.sights import check_groups, check_sights
from fedguard.bench.acceptance.contracts.symmetry import check_clients, check_maps, check_order
from fedguard.bench.acceptance.contracts.tampering import check_code, check_reach
from fedguard.bench.acceptance.findings import AcceptanceFinding

Check = Callable[[ContractCase], Iterator[AcceptanceFinding]]

#: By name, in the order in which they run: what a rule changes or reaches for is looked at first, before it has run often.
CHECKS: dict[str, Check] = {
    "sights": check_sights,
    "reach": check_reach,
    "answers": check_answers,
    "groups": check_groups,
    "determinism": check_determinism,
    "state": check_state,
    "order": check_order,
    "clients": check_clients,
    "maps": check_maps,
    "influence": check_influence,
    "recognition": check_recognition,
    "sameness": check_sameness,
    "code": check_code,
    "cost": check_cost,
}
