"""What a network of tokens does with each token by itself, before its first attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from fedguard.attacks.inference.layers import Layer, layer
from fedguard.contracts import InferenceView
from fedguard.contracts.tasks import select_trained
from fedguard.errors import PreconditionError

#: Texts of which the layers' inputs are computed at a time, in tokens.
AT_A_TIME = 2**14


class _AllCalled(Exception):
    """All layers that were waited for have been called; the rest of the network is of no interest."""


def embedding(view: InferenceView) -> nn.Embedding:
    """The layer that embeds the tokens.

    Raises:
        PreconditionError: the inputs are no texts, or no layer embeds them.
    """
    for module in view.module.modules():
        if isinstance(module, nn.Embedding) and len(view.shape) == 1 and module.num_embeddings >= vocabulary(view):
            return module
    raise PreconditionError(
        f"expected texts, tokens by number that an nn.Embedding of {vocabulary(view)} rows reads; got inputs of shape "
        f"{list(view.shape)} and a network without it. Use data such as text_table with such a network."
    )


def vocabulary(view: InferenceView) -> int:
    """The number V of tokens."""
    return round(view.value_range[1]) + 1


def token_layers(view: InferenceView) -> list[list[Layer]]:
    """The trained dense layers whose input at a place depends on the token there alone; layers of equal inputs together.

    They are found by trial: at the first and at the last place, the input must stay as all other tokens change, and must change
    with its own. Such are query, key and value of the first attention, and both factors of an adapter beside them.

    Raises:
        PreconditionError: there is none.
    """
    embedding(view)
    trained = {id(parameter) for parameter in select_trained(view.module).values()}
    dense = [one for one in view.module.modules() if isinstance(one, nn.Linear) and id(one.weight) in trained]
    draw = view.rng.child("tokens").torch()
    x = torch.randint(vocabulary(view), (3, *view.shape), generator=draw)
    x[1] = (x[0] + 1) % vocabulary(view)
    x[2] = (x[0] + 2) % vocabulary(view)
    x[1, 0], x[2, -1] = x[0, 0], x[0, -1]
    groups: list[tuple[Tensor, list[Layer]]] = []
    inputs = inputs_of(view, dense, x)
    for module in dense:
        given = inputs.get(module)
        if given is None or given.dim() != 3 or given.shape[:2] != x.shape or not _local(given):
            continue
        same = next((layers for other, layers in groups if torch.equal(other, given)), None)
        if same is None:
            groups.append((given, same := []))
        same.append(layer(view, module))
    if not groups:
        raise PreconditionError(
            "expected a trained dense layer that reads each token by itself, such as the query of a first attention; this "
            "network has none. Train one, or an adapter beside it."
        )
    return [layers for _, layers in groups]


def _local(given: Tensor) -> bool:
    """Whether the input ``[3, length, i]`` of texts 0 and 1 is the same at place 0, and of 0 and 2 at the last place only."""
    same = torch.allclose(given[0, 0], given[1, 0]) and torch.allclose(given[0, -1], given[2, -1])
    return same and not torch.allclose(given[0, 0], given[2, 0]) and not torch.allclose(given[0, -1], given[1, -1])


def inputs_of(view: InferenceView, modules: Sequence[nn.Module], x: Tensor) -> dict[nn.Module, Tensor]:
    """By dense layer, its input for texts int64 ``[B, length]`` under the model that was sent; uncalled ones are left out."""
    seen: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen.setdefault(module, given[0].detach())
        if len(seen) == len(modules):
            raise _AllCalled

    hooks = [module.register_forward_pre_hook(keep) for module in modules]
    try:
        with torch.no_grad():
            view.predict(view.models[max(len(view.models) - 2, 0)], x.to(torch.get_default_dtype()))
    except _AllCalled:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def candidates(view: InferenceView, module: nn.Module) -> Iterator[Tensor]:
    """float64 ``[some, length, i]``: a layer's input for each token of the vocabulary at each place, in the order of tokens."""
    (length,) = view.shape
    for numbers in torch.split(torch.arange(vocabulary(view)), max(1, AT_A_TIME // length)):
        yield inputs_of(view, [module], numbers[:, None].expand(-1, length))[module].double()
