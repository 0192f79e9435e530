"""The verdict of a run: a sentence with its evidence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunVerdict:
    """The verdict on one setting; `str` is all of it.

    Attributes:
        headline: the sentence.
        lead: the evidence for it, sentence by sentence.
        action: how to get a clearer verdict; "" if there is nothing to do.
        ranked: whether the defenses may be ordered by score.
        group: the leading group: defenses not separated from the first; empty without a test.
    """

    headline: str
    lead: tuple[str, ...] = ()
    action: str = ""
    ranked: bool = False
    group: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(part for part in (self.headline, *self.lead, self.action) if part)
