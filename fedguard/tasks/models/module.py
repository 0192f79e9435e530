"""A network of the user's own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedguard.contracts import Model
from fedguard.contracts.user_function import UserFunction
from fedguard.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Module(Model):
    """``module:function`` that takes the shape of an input and the number of classes, and returns a `torch.nn.Module`.

    It takes ``[B, *shape]`` to logits ``[B, classes]``. It draws nothing at random as it runs (no Dropout). Parameters
    with ``requires_grad=False`` are frozen: no update carries them, and they stay as returned. ``training.statistics``
    says what becomes of running statistics (BatchNorm); no other buffer may change as it trains. The module is found where
    Python finds modules, and beside the suite.

    Args:
        target: ``module:function``; a class will do.
    """

    name = "module"
    source = "your own"

    target: UserFunction

    @property
    def modules(self) -> frozenset[str]:
        return super().modules | {self.target.module.partition(".")[0]}

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if isinstance(self.target.load_function("model"), nn.Module):
            raise ConfigError(
                f"model {self.target}: expected what makes a network, a function or a class; got a network."
            )
        built = self.target.call_function("model", shape, classes)
        if not isinstance(built, nn.Module):
            raise ConfigError(f"model {self.target}: expected a torch.nn.Module; got {type(built).__name__}.")
        return built
