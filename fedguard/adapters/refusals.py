"""Where products of factors cannot be aggregated, and why."""

from __future__ import annotations

from collections.abc import Iterator

from fedguard.contracts import Architecture, Cell, Sight, WeightRule


def why_no_products(form: str, cell: Cell, architecture: Architecture) -> Iterator[str]:
    """A line for each part of a cell that cannot work on products of what clients send.

    Args:
        form: name of the form, for the lines.
    """
    yield from _of_training(form, cell, architecture)
    rule, training = cell.pipeline.rule, cell.training
    if not rule.by_blocks:
        yield (
            f"{rule.name} reads all updates as one matrix, and with training.adapters: {form} a row is a product of factors "
            "that is never computed. Use a rule by weights or coordinates, such as krum or median, or form: factors."
        )
    elif isinstance(rule, WeightRule) and type(rule).anchors is not WeightRule.anchors:
        yield (
            f"{rule.name} compares updates with a vector of coordinates, and with training.adapters: {form} they are products "
            "of factors. Use a rule without an anchor, such as krum, or form: factors."
        )
    if cell.server_step != 1 or training.server_lr != 1 or training.server_momentum or training.server_optimizer:
        yield (
            f"training.adapters: {form} says itself what the adapters are after a round, and a server's step would move the "
            "factors. Leave server_lr, server_momentum and server_optimizer out, and use fedavg; or use form: factors."
        )
    if cell.attack is not None and Sight.RULE in cell.attack_sees:
        yield (
            f"{cell.attack.name} tries the server's rule on vectors of coordinates, and with training.adapters: {form} rows "
            "are products of factors. Use an attack that asks no rule, such as ipm, or form: factors."
        )


def _of_training(form: str, cell: Cell, architecture: Architecture) -> Iterator[str]:
    if architecture.name != "server":
        yield (
            f"training.adapters: {form} forms products at one server in synchronous rounds, and {architecture.name} aggregates "
            "in another way. Use architecture: server, or form: factors or frozen_a."
        )
    if cell.masking.masked or cell.noise.added_by == "server":
        what = "under masks the server" if cell.masking.masked else "a server that adds noise"
        yield (
            f"{what} sums up what clients send, and a sum of factors is no sum of the products that training.adapters: {form} "
            "needs. Use form: frozen_a."
        )
    if not cell.algorithm.only_updates or cell.training.worker_momentum:
        what = "training.worker_momentum" if cell.algorithm.only_updates else cell.algorithm.name
        yield (
            f"{what} keeps vectors from round to round, and after each round of training.adapters: {form} the same adapter "
            "has other factors. Use fedavg without it, or form: factors or frozen_a."
        )
