"""DeepSight (Rieger et al., NDSS 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from fedguard.contracts import Gram, PositiveInt, RuleContext, Share, Sight, WeightRule
from fedguard.defenses.aggregators.clusters import cosine_distances, distances_between, hdbscan, members


@dataclass(frozen=True, kw_only=True)
class DeepSight(WeightRule):
    """Clusters the updates by what their output layer learned, and drops the clusters of those trained on few labels.

    Energies: $e_ic = (|db_ic| + sum_h |dW_ich|)^2$ for output c with the update dW, db of its weights and bias, and
    normalized $E_ic = e_ic / (sum_c e_ic)$. Update i is suspicious if the number of c with $E_ic >= max(0.01, 1/C) max_c
    E_ic$ is at most half of the median of these numbers. Division differences: $D_ic = mean_z p_c(w + x_i, z) / p_c(w, z)$
    over random inputs z with p the predicted probabilities, for several sets of inputs. HDBSCAN clusters by the cosine
    distances of the db_i, by the $E_i$ and by each set of $D_i$. The distance of two updates is the share of these
    clusterings that separates them (the sets of $D_i$ together count as one). HDBSCAN on these distances, which may put all
    updates into one cluster, gives the clusters. A cluster is dropped if the share of suspicious updates in it is at least
    ``tau``; an update in no cluster is dropped if it is suspicious. The result is the mean of $x_i min(1, S / |x_i|)$ over
    the rest, with S the median of all $|x_i|$; if no update is left, the model stays as it is.

    The output layer is the last two parameter tensors, if they are the weights and the bias of C outputs. In other networks
    the whole update is treated as this layer: each coordinate is an output, and all of them are the bias.

    Args:
        tau: the share of suspicious updates from which on a cluster is dropped.
        cluster: size of the smallest cluster. The source does not give it, and its authors' program is not available; other
            programs take 3 to 5. With 2, any two malicious clients can form a cluster.
        one: whether the last clustering may return a single cluster, as in some programs.
        seeds: number of sets of random inputs, each uniform in [0, 1].
        samples: inputs in a set. The source takes 20,000; here all updates share the inputs, so far fewer separate them.
    """

    name = "deepsight"
    source = "Rieger et al., DeepSight: Mitigating Backdoor Attacks in FL Through Deep Model Inspection, NDSS 2022"
    needs = (Sight.EACH_UPDATE | Sight.MODEL,)
    by_blocks = False
    makes_inputs = True
    min_rows = (2, 1)
    breakdown = "f < n/2, if malicious data hold fewer labels than honest ones"
    cost = "O(n^2 d): one Gram matrix; seeds * samples predictions of each update's model"
    grid: ClassVar = {"tau": (0.25, 1 / 3, 0.5), "cluster": (2, 3, 5)}

    tau: Share = 1 / 3
    cluster: Annotated[int, Ge(2)] = 3
    one: bool = True
    seeds: PositiveInt = 3
    samples: PositiveInt = 1000

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        updates = gram.vectors
        differences = [self._differences(updates, context, seed) for seed in range(self.seeds)]
        energies, bias = output_layer(updates, context.layers, differences[0].shape[1])
        separated = [self._cluster_distances(distances_between(one)) for one in differences]
        by_bias = self._cluster_distances(cosine_distances(bias @ bias.T))
        by_energy = self._cluster_distances(distances_between(energies))
        merged = (torch.stack(separated).mean(0) + by_bias + by_energy) / 3
        accepted = accept(hdbscan(merged, self.cluster, single=self.one), suspicious(energies), self.tau)
        norms = gram.norms()
        shortened = (norms.quantile(0.5) / norms).clamp(max=1).nan_to_num(nan=1.0)
        return torch.where(accepted, shortened, 0.0) / accepted.sum().clamp(min=1)

    def _differences(self, updates: Tensor, context: RuleContext, seed: int) -> Tensor:
        """float64 ``[n, C]``: by how much each update raises the probability of each class on random inputs."""
        # The same inputs for all updates: fresh ones would add their sampling error to each distance
        draw = context.rng.child("inputs", seed).torch()
        inputs = torch.rand(self.samples, *context.shape, generator=draw)
        before = _log_probabilities(context, context.model, inputs)
        return torch.stack(
            [(_log_probabilities(context, context.model + row, inputs) - before).exp().mean(0) for row in updates]
        )

    def _cluster_distances(self, distances: Tensor) -> Tensor:
        """float64 ``[n, n]``: 0 for two updates of the same cluster and on the diagonal, 1 elsewhere."""
        labels = hdbscan(distances, self.cluster)
        together = (labels[:, None] == labels[None]) & (labels >= 0)[:, None]
        return 1 - together.double().fill_diagonal_(1)


def output_layer(updates: Tensor, layers: tuple[int, ...], classes: int) -> tuple[Tensor, Tensor]:
    """float64 ``[n, C]``, the normalized energies of the outputs; float64 ``[n, C]``, the update of the bias."""
    last = layers[-1]
    # Only the sizes of the tensors are known, so the last two are taken for a dense layer if their sizes fit one
    if len(layers) < 2 or last != classes or layers[-2] % last:
        bias = updates.double()
        magnitudes = bias.abs()
    else:
        bias = updates[:, -last:].double()
        weights = updates[:, -last - layers[-2] : -last].double().view(len(updates), last, -1)
        magnitudes = bias.abs() + weights.abs().sum(2)
    energies = magnitudes.square()
    return energies / energies.sum(1, keepdim=True).clamp(min=1e-300), bias


def suspicious(energies: Tensor) -> Tensor:
    """bool ``[n]``: updates with at most half the median number of energies above the threshold."""
    threshold = max(0.01, 1 / energies.shape[1]) * energies.amax(1, keepdim=True)
    # An update of zeros reaches its threshold of 0 everywhere, and so is not suspicious
    exceedings = (energies >= threshold).sum(1).double()
    return exceedings <= exceedings.quantile(0.5) / 2


def accept(labels: Tensor, suspects: Tensor, tau: float) -> Tensor:
    """bool ``[n]``: members of clusters with a share of suspects below ``tau``, and unsuspected updates in no cluster."""
    accepted = ~suspects
    for inside in members(labels):
        accepted[inside] = bool(suspects[inside].double().mean() < tau)
    return accepted


def _log_probabilities(context: RuleContext, model: Tensor, inputs: Tensor) -> Tensor:
    """float64 ``[samples, C]``, held above log 1e-30 so that a ratio stays finite."""
    with torch.no_grad():
        logits = context.predict(model, inputs).double()
    # A malicious model may overflow; a NaN would spread to all distances, and so to the clusters of honest updates
    held = logits.nan_to_num(nan=0.0, posinf=1e300, neginf=-1e300)
    return held.log_softmax(1).clamp(min=-69.0)
