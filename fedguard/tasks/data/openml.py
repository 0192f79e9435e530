"""Data sets of openml.org, fetched once and kept by scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError, require
from fedguard.tasks.data.assembly import Part, assembled, pixels, shaped


@dataclass(frozen=True, kw_only=True)
class OpenML(Data):
    """A data set of openml.org by name, such as ``openml:mnist_784`` or ``{name: openml, dataset: Fashion-MNIST, shape: [1, 28, 28]}``.

    It is fetched over the network the first time, and then kept where scikit-learn keeps its data.

    Args:
        dataset: its name there.
        version: which of its versions.
        shape: of an input, for images: then values are pixels in 0 ... 255. Without one, columns are standardised.
        test: the share of the examples kept for testing.
    """

    name = "openml"
    source = "Vanschoren et al., OpenML: Networked Science in Machine Learning, SIGKDD Explorations 2013; through scikit-learn"

    dataset: str
    version: int = 1
    shape: tuple[int, ...] | None = None
    test: float = 0.2

    def __post_init__(self) -> None:
        require(0 < self.test < 1, f"openml: test: expected a share between 0 and 1; got {self.test}.")

    def load(self) -> Dataset:
        from sklearn.datasets import fetch_openml

        where = f"openml:{self.dataset}"
        try:
            bunch = fetch_openml(name=self.dataset, version=self.version, as_frame=False, parser="liac-arff")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{where}: cannot be fetched: {' '.join(str(error).split())} It needs the network once; what was fetched is kept."
            ) from None
        x = bunch.data if self.shape is None else shaped(where, pixels(where, bunch.data), self.shape)
        return assembled(where, Part(x, bunch.target), share=self.test, value_range=(0.0, 1.0) if self.shape else None)
