"""The help texts that come with Python: real text without a download."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import Data, Dataset, PositiveInt, Preparation
from fedguard.tasks.data.text import windows


@dataclass(frozen=True, kw_only=True)
class PythonTopics(Data):
    """What ``help()`` tells of Python's language, to name the next character of; each topic is a natural client.

    The texts depend on the version of Python that runs. A fifth of each topic is kept for testing.

    Args:
        window: characters in an input.
        stride: characters from one window to the next.
        topics: how many of the longest topics.
    """

    name = "python_topics"
    source = "the Python Software Foundation, The Python Language Reference; in every Python"

    window: PositiveInt = 32
    stride: PositiveInt = 8
    topics: PositiveInt = 50

    @property
    def preparation(self) -> Preparation:
        return Preparation("records", "the vocabulary", "Take the data text or leaf with characters given.")

    def load(self) -> Dataset:
        from pydoc_data.topics import topics

        texts = sorted((" ".join(text.split()) for text in topics.values()), key=lambda text: (-len(text), text))
        return windows(self.name, texts[: self.topics], self.window, self.stride, 0.2)
