"""What CONTRIBUTING asks of a new row beside the row itself: each name of each table has it, so a new one without is noticed."""

from __future__ import annotations

import re

import pytest

from fedguard.algorithms import ALGORITHMS
from fedguard.architectures.collectives import TOPOLOGIES
from fedguard.architectures.masking import MASKINGS
from fedguard.architectures.systems import SYSTEMS
from fedguard.attacks import CATALOGUE as ATTACKS
from fedguard.attacks import PROTOCOL
from fedguard.bench.conformance.conform import ENGINES
from fedguard.defenses import CATALOGUE as DEFENSES
from fedguard.privacy.kinds import NOISES
from fedguard.registry import load_registry
from tests.mutants.plants import PLANTS
from tests.root import ROOT

#: A row of a document's table that tells of a name; a name as a test quotes it.
ROW, QUOTED = r"(?m)^\|.*`{}[`(=,]", r"[\"'{{ ]{}[\"'(=: ,]"

EXAMPLES = [name for name in ALGORITHMS if not load_registry().get("algorithm", name).acts]

#: Of each table: its names, the file that has to tell of them, and how.
DUTIES = [
    ("systems", SYSTEMS, "docs/architectures.md", ROW),
    ("topologies", TOPOLOGIES, "docs/collectives.md", ROW),
    ("traffic of topologies", TOPOLOGIES, "tests/systems/test_collectives.py", QUOTED),
    ("maskings", [name for name in MASKINGS if name != "off"], "tests/masking/test_modes_of_masking.py", QUOTED),
    ("algorithms on examples", EXAMPLES, "tests/tasks/test_cohort_equals_plain_loop.py", QUOTED),
    ("engines", ENGINES, "docs/conformance.md", r"{}"),
    ("noises", [name for name in NOISES if name != "none"], "tests/privacy/audit/test_whole_trainings.py", QUOTED),
    ("attacks on secure aggregation", PROTOCOL, "docs/secagg_attacks.md", ROW),
    ("attacks on the training", [name for name in ATTACKS if name != "worst_case"], "tests/table.py", QUOTED),
    ("defenses", DEFENSES, "tests/table.py", QUOTED),
    ("plants", [plant.name for plant in PLANTS], "docs/plants.md", r"(?m)^\| {} \|"),
]


@pytest.mark.parametrize(("names", "file", "how"), [one[1:] for one in DUTIES], ids=[one[0] for one in DUTIES])
def test_each_name_of_a_table_is_told_where_contributing_wants_it(names, file, how):
    text = (ROOT / file).read_text(encoding="utf-8")
    assert len(list(names)) > 1
    assert [name for name in names if not re.search(how.format(re.escape(name)), text)] == []
    assert not re.search(how.format("no_such_name_in_any_table"), text)


def test_contributing_names_files_that_are_there():
    table = (
        (ROOT / "CONTRIBUTING.md")
        .read_text(encoding="utf-8")
        .partition("## Add a part to FedGuard itself")[2]
        .partition("\n## ")[0]
    )
    named = [
        name
        for name in re.findall(r"`([\w./]+/[\w./]*)`", table)
        if "." not in name.rstrip("/") or name.endswith((".py", ".md"))
    ]
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
