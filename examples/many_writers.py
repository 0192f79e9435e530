"""Ten thousand writers: scikit-learn's handwritten digits, each bent to the hand of a writer. The data of cross_device.yaml."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import affine_grid, grid_sample

from fedguard.contracts import Dataset, Examples

WRITERS, TEST_WRITERS = 10_000, 100


def digits() -> Dataset:
    """20 to 50 images of each writer, 8 x 8 pixels in [0, 1].

    A writer turns, slants, stretches and shifts each digit in one way of its own, and has favorite digits: its labels are
    drawn by Dirichlet(1, ..., 1). The 1,797 digits that they all copy are split first: the writers that test the model copy
    360 digits that no other writer has.
    """
    draw = np.random.default_rng(0)
    images, labels = load_digits(return_X_y=True)
    images, labels = images.reshape(-1, 8, 8).astype(np.float32) / 16, labels.astype(np.int64)
    order = draw.permutation(len(labels))
    train = _written(images[order[360:]], labels[order[360:]], WRITERS, draw)
    test = _written(images[order[:360]], labels[order[:360]], TEST_WRITERS, draw)
    return Dataset(train, test, classes=10, value_range=(0.0, 1.0))


def _written(images: np.ndarray, labels: np.ndarray, writers: int, draw: np.random.Generator) -> Examples:
    sizes = draw.integers(20, 51, writers)
    writer = np.repeat(np.arange(writers), sizes)
    likes = draw.dirichlet(np.ones(10), writers).cumsum(1)
    digit = (draw.random(len(writer))[:, None] > likes[writer, :-1]).sum(1)
    members = [np.flatnonzero(labels == label) for label in range(10)]
    taken = np.array([len(one) for one in members])[digit] * draw.random(len(writer))
    copied = np.stack([np.pad(one, (0, len(labels) - len(one))) for one in members])[digit, taken.astype(int)]
    turn, slant = draw.normal(0, 0.15, writers), draw.normal(0, 0.2, writers)
    wide, high = draw.normal(1, 0.1, writers), draw.normal(1, 0.1, writers)
    right, down = draw.normal(0, 0.1, writers), draw.normal(0, 0.1, writers)
    bend = np.stack(
        [
            np.stack([wide * np.cos(turn), slant - np.sin(turn), right], 1),
            np.stack([np.sin(turn), high * np.cos(turn), down], 1),
        ],
        1,
    ).astype(np.float32)
    x = torch.empty(len(writer), 1, 8, 8)
    for part in torch.arange(len(writer)).split(50_000):
        grid = affine_grid(torch.from_numpy(bend[writer[part]]), [len(part), 1, 8, 8], align_corners=False)
        given = torch.from_numpy(images[copied[part]])[:, None]
        x[part] = grid_sample(given, grid, align_corners=False).clamp(0, 1)
    return Examples(x, torch.from_numpy(digit), torch.from_numpy(writer))
