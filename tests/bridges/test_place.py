"""The place of attack and rule that all frameworks share, against plain arithmetic on the same arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedguard.bridges.place import Place, Reply
from fedguard.errors import InputError
from fedguard.guard import Guard

#: Six sites of unequal sizes, two arrays and a counter each; of the second array the names are in no order.
SIZES = (620, 280, 174, 87, 31, 7)
SITES = tuple(f"site-{number}" for number in range(1, 7))


def model(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {
        "w": draw.normal(size=(3, 2)).astype(np.float32),
        "b": draw.normal(size=2).astype(np.float64),
        "batches": np.array(seed, dtype=np.int64),
    }


SENT = model(99)


def replies(full: bool = True, sites=SITES, sizes=SIZES) -> list[Reply]:
    """What the sites answer; ``handle`` is their own model."""
    found = []
    for number, (site, size) in enumerate(zip(sites, sizes, strict=True)):
        own = model(number)
        sent = own if full else {k: own[k] - SENT[k] if k != "batches" else own[k] for k in own}
        found.append(Reply(site, sent, full=full, samples=size, handle=own))
    return found


def run(place: Place, given: list[Reply]) -> list[Reply]:
    if not place.nodes:
        place.meet_sites([one.site for one in given])
    return place.round({one.site: SENT for one in given}, given)


def flat(arrays) -> np.ndarray:
    return np.concatenate([np.asarray(arrays[name], dtype=np.float64).ravel() for name in ("w", "b")])


def updates(given: list[Reply]) -> np.ndarray:
    return np.stack([flat(one.handle) - flat(SENT) for one in given])


def test_without_attack_and_rule_replies_are_what_they_were():
    for full in (True, False):
        given = replies(full)
        for before, after in zip(given, run(Place(Guard(), defended=False), given), strict=True):
            assert after.site == before.site and after.samples == before.samples
            for name, value in before.arrays.items():
                assert after.arrays[name].dtype == value.dtype
                np.testing.assert_allclose(after.arrays[name], value, atol=1e-6)


@pytest.mark.parametrize("full", [True, False])
def test_a_named_site_sends_minus_five_times_the_mean_of_the_honest(full):
    given = replies(full)
    place = Place(Guard(attack="ipm(tau=5)", f=1), defended=False, malicious=["site-2"])
    after = run(place, given)
    rows = updates(given)
    lie = -5 * np.delete(rows, 1, 0).mean(0)
    assert place.malicious == {"site-2"} and place.hostile_share == 1 / 6
    got = flat(after[1].arrays) - (flat(SENT) if full else 0)
    np.testing.assert_allclose(got, lie, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(flat(after[0].arrays), flat(given[0].arrays), atol=1e-6)
    assert after[1].arrays["batches"] == 1  # a counter is no parameter


@pytest.mark.parametrize("full", [True, False])
def test_with_a_rule_every_average_of_the_replies_is_its_aggregate(full):
    given = replies(full)
    after = run(Place(Guard(defense="median", f=1), defended=True), given)
    rows = updates(given)
    middle = np.median(rows, axis=0)
    for weights in (np.ones(6) / 6, np.array(SIZES) / sum(SIZES)):
        mixed = sum(w * flat(one.arrays) for w, one in zip(weights, after, strict=True)) - (flat(SENT) if full else 0)
        np.testing.assert_allclose(mixed, middle, rtol=1e-5, atol=1e-5)


def test_the_weighted_mean_goes_by_what_sites_claim():
    given = replies()
    after = run(Place(Guard(defense="weighted_mean", f=0), defended=True), given)
    expected = (updates(given) * np.array(SIZES)[:, None]).sum(0) / sum(SIZES)
    np.testing.assert_allclose(flat(after[0].arrays) - flat(SENT), expected, rtol=1e-5, atol=1e-6)


def test_the_order_in_which_replies_arrive_changes_nothing():
    def last(order):
        place = Place(Guard(attack="alie", defense="nnm >> trimmed_mean", f=1), defended=True, malicious=["site-3"])
        given = replies()
        found = [run(place, [given[number] for number in order]) for _ in range(2)][-1]
        return [(one.site, flat(one.arrays).tobytes()) for one in found]

    assert last((0, 1, 2, 3, 4, 5)) == last((5, 2, 0, 4, 1, 3))


def test_models_and_differences_are_the_same_round():
    for attack, defense in (("ipm(tau=5)", "median"), ("alie", "krum")):
        found = []
        for full in (True, False):
            place = Place(Guard(attack=attack, defense=defense, f=1), defended=True, malicious=["site-1"])
            after = run(place, replies(full))[0]
            found.append(flat(after.arrays) - (flat(SENT) if full else 0))
        np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


def test_a_round_is_one_of_the_guard():
    """`Guard.step` on vectors: the mean of the replies is its next model, round after round."""
    place = Place(Guard(attack="alie", defense="nnm >> trimmed_mean", f=2), defended=True, malicious=SITES[:2])
    guard, sent = Guard(attack="alie", defense="nnm >> trimmed_mean", f=2), {"w": SENT["w"]}
    place.meet_sites(SITES)
    for number in range(3):
        own = [{"w": model(number * 10 + site)["w"]} for site in range(6)]
        after = place.round(dict.fromkeys(SITES, sent), [Reply(s, w) for s, w in zip(SITES, own, strict=True)])
        expected = guard.step({"w": torch.tensor(sent["w"])}, [{"w": torch.tensor(one["w"])} for one in own])
        sent = {"w": np.asarray(after[3].arrays["w"])}
        np.testing.assert_allclose(sent["w"], expected["w"].numpy(), atol=1e-6)


def test_a_round_in_which_too_few_answer_leaves_the_model():
    place = Place(Guard(defense="krum", f=2), defended=True)
    place.meet_sites(SITES)
    given = replies()[:2]
    after = place.round({one.site: SENT for one in given}, given)
    np.testing.assert_allclose(flat(after[0].arrays), flat(SENT), atol=1e-6)
    assert len(place.abandoned) == 1 and place.rounds == 1
    assert place.round({}, []) == [] and place.rounds == 2


def test_lies_about_examples_are_told():
    place = Place(Guard(attack="inflated_samples", f=1), defended=False, malicious=["site-6"])
    after = run(place, replies())
    assert [one.samples for one in after[:5]] == list(SIZES[:5]) and after[5].samples > 7


@pytest.mark.parametrize(
    ("given", "arguments", "said"),
    [
        (
            replies(),
            {"malicious": ["site-9"], "guard": Guard(f=1)},
            "malicious: expected some of site-1, .*; got site-9",
        ),
        (replies()[:1], {"guard": Guard(f=1)}, "f: expected fewer malicious sites than there are, 1; got 1"),
        (
            [*replies()[:5], Reply("site-6", {"w": SENT["w"]}, samples=3)],
            {"guard": Guard()},
            "the reply of site site-6: expected the entries w, b; it differs in b, batches. Attack and rule need",
        ),
        (
            [*replies()[:5], Reply("site-6", model(5))],
            {"guard": Guard(defense="weighted_mean")},
            "the reply of site site-6: expected the number of examples",
        ),
    ],
)
def test_mistakes_are_one_line(given, arguments, said):
    guard = arguments.pop("guard")
    with pytest.raises(InputError, match=said):
        run(Place(guard, defended=True, **arguments), given)
