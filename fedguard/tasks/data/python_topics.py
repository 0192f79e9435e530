"""The help texts that come with Python: real text without a download."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import Data, Dataset
from fedguard.tasks.data.text import windows


@dataclass(frozen=True, kw_only=True)
class PythonTopics(Data):
    """What ``help()`` tells of Python's language, for the task of naming the next character; each topic is a natural client.

    The texts are those of the Python that runs: another version has other ones.

    Args:
        window: characters in an input.
        stride: characters from one window to the next.
        topics: how many of the longest topics.
    """

    name = "python_topics"
    source = "the Python Software Foundation, The Python Language Reference; in every Python"

    window: int = 32
    stride: int = 8
    topics: int = 50

    def load(self) -> Dataset:
        from pydoc_data.topics import topics

        texts = sorted(topics.values(), key=lambda text: (-len(text), text))[: self.topics]
        return windows("python_topics", [" ".join(text.split()) for text in texts], self.window, self.stride, 0.2)
