"""Record-level differential privacy: how much noise each party adds, and what its DP-SGD costs over the training."""

from __future__ import annotations

from typing import Any

import pytest

from fedguard.contracts import Cell, Participation, Training
from fedguard.privacy.accounting import parallel
from fedguard.privacy.kinds.record import PrivacyLevel, RecordNoise, dp_sgd, epsilon_by_level, steps_in_a_round
from tests.parts import cell_of_parts


def cell(clients: Participation | None = None, **training: Any) -> Cell:
    """Six clients that take part in each round, or ``clients``."""
    return cell_of_parts(clients=clients or Participation(total=6), training=Training(**training))


def test_the_steps_of_all_rounds_are_composed():
    """q = 0.1, z = 2, 200 steps at delta = 1e-5: 3.37 by PRV (3.36 by another accountant, 3.68 by Rényi divergences)."""
    noise = RecordNoise(noise_multiplier=2.0, sample_rate=0.1)
    trained = cell(rounds=10, local_epochs=2)
    assert steps_in_a_round(noise, trained) == 20
    found = epsilon_by_level(noise, trained, dict.fromkeys(range(6), 10))
    assert found[0].value == pytest.approx(3.37, abs=0.02)
    assert (found[0].unit, found[0].relation, found[0].sampling) == ("record", "add/remove", "poisson")
    assert found[0].view == "each client's updates"
    one_round = epsilon_by_level(noise, trained, dict.fromkeys(range(6), 1))
    assert one_round[0].value < 0.5 * found[0].value  # it would be wrong to begin anew in each round


def test_the_number_of_steps_is_public():
    noise = RecordNoise(noise_multiplier=2.0, sample_rate=0.3)
    assert steps_in_a_round(noise, cell(local_epochs=2)) == 6
    assert steps_in_a_round(noise, cell(algorithm="fedsgd")) == 1


def test_the_client_that_took_part_most_often_counts_and_no_sum():
    noise = RecordNoise(noise_multiplier=1.5, sample_rate=0.2)
    often = epsilon_by_level(noise, cell(), {0: 3, 1: 8, 2: 1})
    alone = epsilon_by_level(noise, cell(), {5: 8})
    assert often[0].value == alone[0].value


def test_each_level_finds_its_own_noise():
    levels = (PrivacyLevel(epsilon=1.0), PrivacyLevel(epsilon=6.0, clip=0.5), PrivacyLevel(noise_multiplier=3.0))
    noise = RecordNoise(clip=2.0, sample_rate=0.25, levels=levels)
    trained = cell(rounds=5)
    private = dp_sgd(noise, trained)
    assert [clip for clip, _ in private.levels] == [2.0, 0.5, 2.0]
    strict, loose, given = (multiplier for _, multiplier in private.levels)
    assert strict > 2 * loose and given == 3.0
    assert private.level(4) == private.levels[1]
    found = epsilon_by_level(noise, trained, dict.fromkeys(range(6), 5))
    assert 0.97 < found[0].value <= 1.0 and 5.95 < found[1].value <= 6.0
    assert set(epsilon_by_level(noise, trained, {0: 5, 3: 2})) == {0}


@pytest.mark.slow
def test_clients_that_take_turns_need_less_noise_for_a_target():
    noise = RecordNoise(epsilon=3.0, sample_rate=0.25)
    turns = Participation(total=6, per_round=2, sampling="cyclic")
    ((_, often),) = dp_sgd(noise, cell(rounds=6)).levels
    ((_, rarely),) = dp_sgd(noise, cell(turns, rounds=6)).levels
    assert rarely < 0.8 * often
    assert 2.95 < epsilon_by_level(noise, cell(turns, rounds=6), dict.fromkeys(range(6), 2))[0].value <= 3.0


def test_a_level_out_of_range_of_one_accountant_leaves_the_others_theirs():
    """Noise of a tenth is beyond numerical composition; the other level keeps its tight figure."""
    trained, settings = cell(rounds=10, local_epochs=2), {"sample_rate": 0.1}
    levels = (PrivacyLevel(noise_multiplier=2.0), PrivacyLevel(noise_multiplier=0.05))
    found = epsilon_by_level(RecordNoise(**settings, levels=levels), trained, dict.fromkeys(range(6), 10))
    alone = epsilon_by_level(RecordNoise(**settings, noise_multiplier=2.0), trained, dict.fromkeys(range(6), 10))
    assert found[0].value == alone[0].value and found[0].accountant.startswith("PRV")
    assert found[1].value > 100 and found[1].accountant.startswith("RDP")
    together = parallel(list(found.values()), 6)
    assert together.value == found[1].value
    assert "PRV" in together.accountant and "RDP" in together.accountant
