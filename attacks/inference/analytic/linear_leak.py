"""Inputs from a dense layer's gradient (Phong et al., IEEE TIFS 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.inference.layers import first_dense, inputs, readings, rows
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, Reconstruction


@dataclass(frozen=True, kw_only=True)
class LinearLeak(InferenceAttack):
    """Divides the first dense layer's weight gradient by its bias gradient, which leaves the input.

    $x = (dL/dW_i) / (dL/db_i)$ for each neuron i. One example appears in all neurons, and x is their least-squares
    solution. Of several examples, those that alone activate some neuron are exact; `readings` decides which come first.

    It needs a network that begins with a dense layer with bias.
    """

    name = "analytic"
    source = "Phong et al., Privacy-Preserving Deep Learning via Additively Homomorphic Encryption, IEEE TIFS 2018"
    goal = "reconstruction"
    needs = ONE_VECTOR

    def check(self, view: InferenceView) -> None:
        first_dense(view)

    def infer(self, view: InferenceView) -> Reconstruction:
        weight, bias, neurons = rows(view)
        if view.count == 1 and len(bias):
            return Reconstruction(inputs(view, (bias @ weight / (bias @ bias))[None]))
        return Reconstruction(readings(view, weight, bias, neurons))
