"""The evaluation of nodes with a model each is the mean of theirs, in each of its parts."""

from __future__ import annotations

import pytest

from fedguard.architectures.by_node import _mean_of
from fedguard.contracts import Evaluation


def test_the_mean_of_unlike_nodes_keeps_classes_and_returns():
    nodes = [
        Evaluation(0.5, 0.9, (1.0, 0.8), (10.0, 20.0, 60.0)),
        Evaluation(1.5, 0.3, (0.2, 0.4), (0.0, 50.0, 90.0)),
        Evaluation(4.0, 0.6, (0.3, 0.9), (2.0, 20.0, 0.0)),
    ]
    mean = _mean_of(nodes)
    assert (mean.loss, mean.accuracy) == (2.0, pytest.approx(0.6))
    assert mean.class_accuracy == pytest.approx((0.5, 0.7))
    assert mean.returns == pytest.approx((4.0, 30.0, 50.0))
    assert _mean_of([Evaluation(1.0, 0.5, (0.5,))]).returns == ()
