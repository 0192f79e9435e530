"""The table of plants is what it says it is; whether each is noticed, `make mutants` finds out."""

import pytest

from tests.mutants.faults import FAULTS
from tests.mutants.planting import ROOT, Edit, PlantError, copied, plant
from tests.mutants.plants import PLANTS
from tests.mutants.watching import FROZEN, protocol_attacks


def test_plants_are_many_and_each_has_its_name_and_its_reason():
    names = [one.name for one in PLANTS]
    assert len(set(names)) == len(names) >= 40
    assert all(one.because and one.edits for one in PLANTS)


@pytest.mark.parametrize("one", PLANTS, ids=lambda one: one.name)
def test_each_can_be_planted_in_the_source_as_it_is(one):
    for edit in one.edits:
        assert (ROOT / edit.file).read_text().count(edit.before) == 1, edit.before
        assert edit.before != edit.after


@pytest.mark.parametrize("one", FAULTS, ids=lambda one: one.name)
def test_each_fault_can_be_planted_and_has_quick_tests_near_it(one):
    assert len(FAULTS) >= 20
    for edit in one.edits:
        assert (ROOT / edit.file).read_text().count(edit.before) == 1, edit.before
        assert edit.before != edit.after
    assert all((ROOT / path).exists() for path in one.near)


def test_who_is_expected_to_notice_is_there_and_is_no_frozen_vector():
    attacks = set(protocol_attacks())
    for first in {one.first for one in PLANTS}:
        file, _, test = first.partition("::")
        if test:
            path = ROOT / (file if "/" in file else f"tests/secagg/{file}")
            assert f"def {test}(" in path.read_text() and first not in FROZEN, first
        else:
            assert first in attacks


def test_a_plant_that_would_be_none_is_an_error_and_the_checkout_stays_as_it_is(tmp_path):
    folder, file = copied(tmp_path), "fedguard/secagg/shamir.py"
    before = (ROOT / file).read_text()
    plant([Edit(file, "PRIME = 2**256 + 297", "PRIME = 2**256 + 299")], folder)
    assert "PRIME = 2**256 + 299" in (folder / file).read_text() and (ROOT / file).read_text() == before
    for text, other in (("PRIME = 2**256 + 297", "PRIME = 7"), ("PRIME", "P"), ("import", "import")):
        with pytest.raises(PlantError, match="expected this text exactly once"):
            plant([Edit(file, text, other)], folder)
