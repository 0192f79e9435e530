"""Scores of reconstructions and labels, beside plain loops, brute force and closed forms."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedguard.contracts import Examples, Labels, Reconstruction
from fedguard.errors import ContractError
from fedguard.metrics.baselines import trivial
from fedguard.metrics.labels import blind_guess, label_accuracy, label_score
from fedguard.metrics.reconstruction import EXACT, align_claims, psnr, score, ssim

UNIT = (0.0, 1.0)


def images(count, *shape, seed=0):
    return torch.rand(count, *(shape or (1, 8, 8)), generator=torch.Generator().manual_seed(seed))


def scored(found, x, **more):
    return score(Reconstruction(found), x, **{"value_range": UNIT, **more})


# PSNR.


@pytest.mark.parametrize(
    ("error", "value_range", "expected"),
    [
        (0.1, (0.0, 1.0), 20.0),
        (0.1, (-1.0, 1.0), 20 + 20 * math.log10(2)),
        (25.5, (0.0, 255.0), 20.0),
        (0.0, (0.0, 1.0), 150.0),  # capped, never infinite
        (1e-20, (0.0, 1.0), 150.0),
        (1.0, (0.0, 1.0), 0.0),
        (1e30, (0.0, 1.0), 0.0),
    ],
)
def test_psnr_by_hand(error, value_range, expected):
    x = torch.full((1, 1, 2, 2), value_range[0])
    assert psnr(x + error, x, value_range).item() == pytest.approx(expected, abs=1e-4)


def test_psnr_is_a_plain_loop_for_each_row():
    x, found = images(4, 3, 5, 6), images(4, 3, 5, 6, seed=1)
    for row, value in enumerate(psnr(found, x, (-1.0, 3.0)).tolist()):
        errors = [(a - b) ** 2 for a, b in zip(found[row].flatten().tolist(), x[row].flatten().tolist(), strict=True)]
        assert value == pytest.approx(10 * math.log10(4**2 / (sum(errors) / len(errors))), abs=1e-9)


def test_digits_that_float32_can_tell_apart_are_told_apart():
    x = images(2)
    step = 2.0**-23
    assert 130 < psnr(x + step, x, UNIT).min() < 150
    found, order = align_claims(x.flip(0) + step, x, UNIT)
    assert order == [1, 0]
    assert torch.equal(found, x + step)


# Matching.


def by_brute_force(found, x):
    """The largest sum of PSNR in dB over all ways to give each true row a row of its own."""
    quality = [[-10 * math.log10(max(1e-15, float(((a.double() - b.double()) ** 2).mean()))) for b in found] for a in x]
    best = max(
        itertools.permutations(range(len(found)), len(x)), key=lambda p: sum(quality[i][j] for i, j in enumerate(p))
    )
    return sum(quality[i][j] for i, j in enumerate(best)), list(best)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_matching_is_the_best_of_all_permutations(size):
    for seed in range(5):
        x, claimed = images(size, seed=seed), images(size, seed=100 + seed)
        found, order = align_claims(claimed, x, UNIT)
        total, best = by_brute_force(claimed, x)
        assert order == best
        assert float(psnr(found, x, UNIT).sum()) == pytest.approx(total)


def test_an_exact_claim_is_not_given_up_to_bring_a_bad_one_nearer():
    """By squared errors 0.36 + 0.36 would be less than 0 + 1.44."""
    x, claimed = torch.tensor([[0.0], [0.6]]), torch.tensor([[0.6], [1.2]])
    assert align_claims(claimed, x, UNIT)[1] == [1, 0]


def test_a_greedy_matching_would_be_told():
    """The nearest pair first leaves errors of 0.1 and 0.36; the best matching has 0.11 and 0.15."""
    x, claimed = torch.tensor([[0.0], [0.25]]), torch.tensor([[0.1], [-0.11]])
    found, order = align_claims(claimed, x, UNIT)
    assert order == [1, 0]
    assert torch.equal(found, claimed.flip(0))


@pytest.mark.parametrize("claims", [0, 1, 3])
def test_what_is_missing_counts_as_the_middle_of_the_range(claims):
    x, claimed = images(4), images(claims, seed=1)
    filled = torch.cat([claimed, torch.full((4 - claims, 1, 8, 8), 0.5)])
    total, _ = by_brute_force(filled, x)
    found, order = align_claims(claimed, x, UNIT)
    assert float(psnr(found, x, UNIT).sum()) == pytest.approx(total)
    assert sorted(number for number in order if number is not None) == list(range(claims))
    assert all(bool((found[row] == 0.5).all()) for row, number in enumerate(order) if number is None)
    assert scored(claimed, x)["claimed"] == claims
    assert scored(claimed, x)["psnr"] == scored(filled, x)["psnr"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_makes_an_image_missing(bad):
    x = images(3)
    claimed = x.clone()
    claimed[1, 0, 2, 2] = bad
    result = scored(claimed, x)
    assert result["not_finite"] == 1
    assert result["matching"] == [0, None, 2]
    assert result["exact"] == 2
    assert result["psnr"]["values"][1] == pytest.approx(float(-10 * (x[1] - 0.5).double().square().mean().log10()))


def test_values_too_large_for_float32_are_not_finite():
    x = images(2)
    assert scored(torch.stack([x[0].double() * 1e300, x[1].double()]), x)["not_finite"] == 1


@given(st.permutations(range(5)), st.permutations(range(5)))
def test_the_order_of_claims_and_of_the_truth_means_nothing(mixed, shuffled):
    x, y, claimed = images(5), torch.tensor([1, 1, 2, 3, 0]), images(5, seed=1)
    reference = Examples(images(20, seed=2), torch.arange(20) % 4)
    one = score(Reconstruction(claimed, y), x, y, value_range=UNIT, reference=reference)
    other = score(
        Reconstruction(claimed[list(mixed)], y[list(mixed)]),
        x[list(shuffled)],
        y[list(shuffled)],
        value_range=UNIT,
        reference=reference,
    )
    for figure in ("psnr", "ssim", "gain"):
        assert [other[figure]["values"][shuffled.index(row)] for row in range(5)] == pytest.approx(
            one[figure]["values"], abs=1e-9
        )
        assert other[figure]["half_width"] == pytest.approx(one[figure]["half_width"], abs=1e-9)
    assert other["baselines"] == pytest.approx(one["baselines"])
    assert other["label_accuracy"] == one["label_accuracy"]


# SSIM.


def ssim_by_loops(a, b, length=1.0):
    """Wang et al. (2004), equation 13, in every place of a Gaussian window of 1.5 pixels, for one image [C, H, W]."""
    channels, height, width = a.shape
    size = min(11, height, width)
    size -= 1 - size % 2
    window = np.array(
        [[math.exp(-((i - size // 2) ** 2 + (j - size // 2) ** 2) / 4.5) for j in range(size)] for i in range(size)]
    )
    window /= window.sum()
    c1, c2, found = (0.01 * length) ** 2, (0.03 * length) ** 2, []
    for c in range(channels):
        for i in range(height - size + 1):
            for j in range(width - size + 1):
                p, q = a[c, i : i + size, j : j + size], b[c, i : i + size, j : j + size]
                mp, mq = (window * p).sum(), (window * q).sum()
                vp, vq = (window * (p - mp) ** 2).sum(), (window * (q - mq) ** 2).sum()
                vpq = (window * (p - mp) * (q - mq)).sum()
                found.append((2 * mp * mq + c1) * (2 * vpq + c2) / ((mp**2 + mq**2 + c1) * (vp + vq + c2)))
    return float(np.mean(found))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 12, 13), (2, 4, 7), (1, 2, 2), (1, 1, 5)])
def test_ssim_is_a_plain_loop(shape):
    x, found = images(3, *shape), images(3, *shape, seed=1) * 0.5 + images(3, *shape) * 0.5
    for row, value in enumerate(ssim(found, x, UNIT).tolist()):
        assert value == pytest.approx(ssim_by_loops(found[row].double().numpy(), x[row].double().numpy()), abs=1e-10)


def test_ssim_of_an_image_with_itself_is_one():
    assert ssim(images(3), images(3), UNIT).tolist() == pytest.approx([1.0] * 3)


def test_ssim_of_flat_images_is_the_term_of_their_means():
    """(2 ab + c1) / (a^2 + b^2 + c1): the variances are 0."""
    flat = torch.full((1, 1, 8, 8), 1.0)
    a, b = 0.25, 0.75
    assert ssim(a * flat, b * flat, UNIT).item() == pytest.approx((2 * a * b + 1e-4) / (a * a + b * b + 1e-4))


def test_ssim_of_a_shifted_image_has_the_means_alone():
    """One window on the whole 7x7 image: contrast and structure are 1, the mean moves by 0.2."""
    x = images(1, 1, 7, 7) * 0.8
    line = np.exp(-((np.arange(7) - 3) ** 2) / 4.5)
    window = np.outer(line, line) / line.sum() ** 2
    m = float((window * x[0, 0].numpy()).sum())
    expected = (2 * m * (m + 0.2) + 1e-4) / (m**2 + (m + 0.2) ** 2 + 1e-4)
    assert ssim(x + 0.2, x, UNIT).item() == pytest.approx(expected, abs=1e-6)


def test_ssim_of_a_negative_is_negative():
    x = images(2)
    assert ssim(1 - x, x, UNIT).max() < 0


def test_ssim_goes_with_the_value_range():
    x, found = images(2), images(2, seed=1)
    assert ssim(4 * found - 2, 4 * x - 2, (-2.0, 2.0)).tolist() == pytest.approx(
        ssim(found, x, UNIT).tolist(), abs=1e-6
    )


def test_ssim_of_a_diverged_claim_stays_within_bounds():
    """In one color far out of the range, where a variance is nothing but rounding."""
    x = torch.full((200, 1, 8, 8), 0.5)
    found = 10 ** torch.linspace(1, 30, 200).view(-1, 1, 1, 1) * torch.ones_like(x)
    assert ssim(found, x, UNIT).abs().max() < 0.2
    assert ssim(found, images(200), UNIT).abs().max() < 0.2


def test_vectors_have_no_ssim():
    x = images(3, 13)
    result = scored(x + 0.1, x)
    assert result["ssim"] is None
    assert result["psnr"]["mean"] == pytest.approx(20.0, abs=1e-4)


# Baselines and gain.


def test_a_constant_color_scores_the_variance_of_the_image():
    x = images(4, 3, 8, 8)
    per_channel = x.double().flatten(2).var(2, correction=0).mean(1)
    assert scored(x, x)["baselines"]["constant_color"] == pytest.approx(
        float((-10 * per_channel.log10()).mean()), abs=1e-5
    )
    flat = torch.full((1, 1, 8, 8), 0.3)
    assert scored(flat, flat)["gain"]["mean"] == 0  # a crop in one color: nothing was learned


def test_no_constant_is_better_than_the_constant_color():
    x = images(1)
    best = scored(x, x)["baselines"]["constant_color"]
    tried = [psnr(torch.full_like(x, value / 200), x, UNIT).item() for value in range(201)]
    assert max(tried) <= best < max(tried) + 0.01


def test_mean_baselines_are_means_of_the_reference():
    reference = Examples(images(6, 2), torch.tensor([0, 1, 0, 1, 0, 0]))
    x = images(3, 2, seed=1)
    found = trivial(x, torch.tensor([1, 7]), reference)  # nobody has a 7, and the third label is not claimed
    mean = sum(reference.x) / 6
    assert torch.allclose(found["data_mean"], torch.stack([mean] * 3))
    assert torch.allclose(found["class_mean"], torch.stack([(reference.x[1] + reference.x[3]) / 2, mean, mean]))
    assert set(trivial(x, None, reference)) == {"constant_color", "data_mean"}
    assert set(trivial(x, torch.tensor([1]), None)) == {"constant_color"}


def test_who_claims_the_class_means_gains_nothing():
    """Prototypes with a little noise: the class mean is the best guess there is, whatever the order it is claimed in."""
    prototypes = images(4)
    reference = Examples(prototypes[torch.arange(40) % 4] + 0.05 * images(40, seed=1), torch.arange(40) % 4)
    y = torch.tensor([3, 0, 2])
    x = prototypes[y] + 0.05 * images(3, seed=2)
    means = torch.stack([reference.x[reference.y == label].mean(0) for label in (0, 2, 3)])
    result = score(Reconstruction(means, torch.tensor([3, 2, 0])), x, y, value_range=UNIT, reference=reference)
    assert result["best_baseline"] == "class_mean"
    assert result["baselines"]["class_mean"] > result["baselines"]["data_mean"]
    assert result["gain"]["values"] == pytest.approx([0.0] * 3)
    assert result["label_accuracy"] == 1.0


def test_the_gain_is_over_the_best_baseline_on_average():
    x, found = images(3), images(3, seed=1)
    reference = Examples(images(50, seed=2), torch.zeros(50, dtype=torch.int64))
    result = scored(found, x, reference=reference)
    assert result["best_baseline"] == max(result["baselines"], key=result["baselines"].get)
    assert result["gain"]["mean"] == pytest.approx(result["psnr"]["mean"] - max(result["baselines"].values()))
    assert result["gain"]["mean"] < 0  # noise is worse than any of them


def test_revealed_is_nearer_than_every_guess_at_the_same_input_by_a_decibel():
    """As a plain loop; a little more and a little less than 1 dB, and a best guess that differs from input to input."""
    reference = Examples(images(50, seed=2), torch.zeros(50, dtype=torch.int64))
    x = images(6)
    x[3:] = reference.x.mean(0) + 0.2 * (images(3, seed=5) - 0.5)  # near the mean of the data, the others are not
    found = x.clone()
    guesses = trivial(x, None, reference)
    expected = 0
    for row, off in enumerate((0.99, 1.01, 5.0, 0.99, 1.01, -5.0)):
        nearest = max(float(psnr(guess[row : row + 1], x[row : row + 1], UNIT)) for guess in guesses.values())
        error = 10 ** (-(nearest + off) / 20)
        found[row] = x[row] + error * torch.tensor([1.0, -1.0]).repeat(x[row].numel() // 2).view(x[row].shape)
        expected += off >= 1
    result = scored(found, x, reference=reference)
    assert result["matching"] == [0, 1, 2, 3, 4, 5] and result["revealed"] == expected == 3


def test_a_mean_gain_hides_what_is_revealed_and_noise_around_a_guess_reveals_nothing():
    reference = Examples(images(50, seed=2), torch.zeros(50, dtype=torch.int64))
    x = images(20)
    claimed = torch.cat([x[:3] + 0.02, images(17, seed=7) * 3 - 1])  # three are read, the others are far off
    result = scored(claimed, x, reference=reference)
    assert result["gain"]["mean"] < -2 and (result["revealed"], result["exact"]) == (3, 0)
    guess = reference.x.mean(0).expand_as(x)
    for spread in (0.0, 0.01, 0.05, 0.2):
        noisy = guess + spread * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
        assert scored(noisy, x, reference=reference)["revealed"] == 0


def test_the_interval_is_students():
    result = scored(images(3, seed=1), images(3))
    values = result["psnr"]["values"]
    deviation = math.sqrt(sum((value - sum(values) / 3) ** 2 for value in values) / 2)
    assert result["psnr"]["half_width"] == pytest.approx(4.302653 * deviation / math.sqrt(3), rel=1e-6)
    assert scored(images(1, seed=1), images(1))["psnr"]["half_width"] is None


def test_exact_is_an_rms_error_of_a_thousandth_of_the_range():
    x = 10 * images(2)
    assert EXACT == 60
    result = scored(x + torch.tensor([0.0099, 0.0101]).view(2, 1, 1, 1), x, value_range=(0.0, 10.0))
    assert result["exact"] == 1


def test_a_score_is_json_without_nan():
    reference = Examples(images(5, seed=2), torch.arange(5))
    claim = Reconstruction(torch.full((2, 1, 8, 8), math.nan), torch.tensor([0, 1]))
    result = score(claim, images(3), torch.tensor([0, 0, 1]), value_range=UNIT, reference=reference)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["matching"] == [None] * 3
    assert result["label_accuracy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (
            Reconstruction(images(3, 1, 7, 8)),
            "expected floats of shape [B, 1, 8, 8]; got torch.float32 of shape [3, 1, 7, 8]",
        ),
        (Reconstruction(images(3, 64)), "expected floats of shape [B, 1, 8, 8]"),
        (Reconstruction(images(3).long()), "expected floats"),
        (Reconstruction(images(4)), "at most as many as examples, 3; got 4. Choose among them"),
        (Reconstruction(images(3), torch.zeros(4, dtype=torch.int64)), "at most as many as examples, 3; got 4"),
        (Reconstruction(images(3), torch.zeros(3)), "expected int64 of shape [B]"),
        (Reconstruction(images(3), torch.zeros(3, 1, dtype=torch.int64)), "expected int64 of shape [B]"),
    ],
)
def test_what_is_no_claim_is_refused(claim, said):
    with pytest.raises(ContractError) as error:
        score(claim, images(3), value_range=UNIT)
    assert said in str(error.value)


# Labels.

some_labels = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(some_labels, some_labels)
def test_label_accuracy_is_the_intersection_of_counters(claimed, truth):
    expected = (Counter(claimed) & Counter(truth)).total() / max(len(claimed), len(truth))
    assert label_accuracy(torch.tensor(claimed), torch.tensor(truth)) == pytest.approx(expected)


@given(some_labels, st.randoms(use_true_random=False))
def test_a_shuffled_multiset_is_exact(truth, random):
    claimed = random.sample(truth, len(truth))
    result = label_score(Labels(torch.tensor(claimed)), torch.tensor(truth), classes=5)
    assert (result["accuracy"], result["exact"], result["count_error"]) == (1.0, True, [0] * 5)


def test_errors_are_counted_by_class():
    result = label_score(torch.tensor([0, 0, 2]), torch.tensor([0, 1, 1, 2]), classes=4)
    assert result["count_error"] == [1, -2, 0, 0]
    assert (result["examples"], result["claimed"], result["exact"]) == (4, 3, False)
    assert result["accuracy"] == pytest.approx(2 / 4)
    assert result["gain"] == pytest.approx(result["accuracy"] - result["trivial"])
    assert json.loads(json.dumps(result)) == result


def test_a_label_too_few_is_not_exact():
    assert not label_score(torch.tensor([1, 1]), torch.tensor([1, 1, 1]), classes=2)["exact"]


@pytest.mark.parametrize("prior", [[1 / 3, 1 / 3, 1 / 3], [0.6, 0.3, 0.1], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_blind_guess_is_the_best_of_all(prior, size):
    """In expectation over labels drawn by the prior, no multiset hits more of them."""

    def expected(value_of):
        draws = itertools.product(range(3), repeat=size)
        return sum(math.prod(prior[label] for label in truth) * value_of(truth) for truth in draws)

    def hits(guess):
        return lambda truth: (Counter(guess) & Counter(truth)).total() / size

    best = max(expected(hits(guess)) for guess in itertools.combinations_with_replacement(range(3), size))
    blind = expected(lambda truth: blind_guess(torch.tensor(truth), torch.tensor(prior)))
    assert blind == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(
    ("truth", "classes", "expected"),
    [
        ([3], 10, 0.1),
        (list(range(10)), 10, 1.0),  # one of each, and that is the guess
        ([0] * 10, 10, 0.1),
        ([0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9], 10, (10 + 2 * 2 / 10) / 12),  # two of ten classes get a second guess
    ],
)
def test_the_blind_guess_by_hand(truth, classes, expected):
    assert label_score(torch.tensor(truth), torch.tensor(truth), classes=classes)["trivial"] == pytest.approx(expected)


def test_a_known_frequent_class_is_guessed_first():
    truth = torch.tensor([1, 1, 1, 0])
    assert blind_guess(truth, torch.tensor([0.01, 0.99])) == pytest.approx(3 / 4)
    assert blind_guess(truth, torch.tensor([0.99, 0.01])) == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    ("claimed", "said"),
    [
        (torch.tensor([0, 3]), "expected 0 to 2; got 0 to 3"),
        (torch.tensor([-1, 1]), "expected 0 to 2; got -1 to 1"),
        (torch.tensor([0, 1, 1]), "at most as many as examples, 2; got 3"),
        (torch.tensor([0.0, 1.0]), "expected int64 of shape [B]; got torch.float32"),
    ],
)
def test_what_is_no_claim_of_labels_is_refused(claimed, said):
    with pytest.raises(ContractError) as error:
        label_score(Labels(claimed), torch.tensor([0, 1]), classes=3)
    assert said in str(error.value)


def test_an_empty_claim_of_labels_is_wrong_throughout():
    result = label_score(torch.empty(0, dtype=torch.int64), torch.tensor([0, 1]), classes=2)
    assert (result["accuracy"], result["claimed"]) == (0.0, 0)
