"""Padding of short texts: whether a network reads it, and whether a text goes on behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedguard.contracts.tasks import Tokens
from fedguard.errors import ConfigError

#: Texts with which a network is tried.
TEXTS = 4


@torch.no_grad()
def check_padding(module: nn.Module, tokens: Tokens, shape: tuple[int, ...], name: str) -> None:
    """Check that the logits of a padded text do not depend on the embedding of the padding.

    Then nothing depends on it: no gradient reaches that embedding, and padded places add to no other. A network that does not
    give its input to an `nn.Embedding` is not checked.

    Args:
        shape: of an input, ``[length]``.

    Raises:
        ConfigError: they depend on it.
    """
    if tokens.padding is None or len(shape) != 1 or shape[0] < 2:
        return
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(tokens.vocabulary - 1, (TEXTS, *shape), generator=draw)
    x += x >= tokens.padding
    for row, text in enumerate(x):
        text[1 + row * (shape[0] - 1) // TEXTS :] = tokens.padding  # of different lengths
    usual = module(x)
    with _other_padding(module, tokens.padding, x):
        other = module(x)
    if not torch.allclose(usual, other, rtol=1e-5, atol=1e-6, equal_nan=True):
        raise ConfigError(
            f"model {name}: reads the padding, token {tokens.padding}: the logits of a short text depend on its embedding. "
            f"Give attention the mask x != {tokens.padding}, and leave those places out of means and last places."
        )


def goes_on_behind(x: Tensor, padding: int) -> Tensor:
    """bool ``[N]``: which texts ``[N, length]`` have a token behind their padding, where no network would look for one."""
    return ((x == padding).cummax(1).values & (x != padding)).any(1)


@contextmanager
def _other_padding(module: nn.Module, padding: int, x: Tensor) -> Iterator[None]:
    """Within the context, layers that embed the tokens ``x`` embed the padding elsewhere."""
    draw = torch.Generator().manual_seed(1)

    def embed(_: nn.Module, given: tuple[Tensor, ...], gave: Tensor) -> Tensor | None:
        if given[0].shape != x.shape or not torch.equal(given[0], x):
            return None  # numbers of places or of segments
        other = torch.randn(gave.shape[-1], generator=draw, dtype=gave.dtype)
        return torch.where((x == padding)[..., None], other, gave)

    embeddings = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    hooks = [part.register_forward_hook(embed) for part in embeddings]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
