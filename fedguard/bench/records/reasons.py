"""Why cells were refused or failed, in words: those with the same reason in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

#: More names than these are counted.
_NAMED = 4


def reason_lines(cells: Iterable[tuple[str, str, str]], unit: str) -> Iterator[str]:
    """``none, ipm against krum (6 trials): krum needs ...`` for (attack, defense, reason) of each cell or trial.

    Args:
        unit: what is counted: cells, trials or seeds.
    """
    alike: dict[str, list[tuple[str, str]]] = {}
    for attack, defense, reason in cells:
        alike.setdefault(reason, []).append((attack, defense))
    for reason, pairs in alike.items():
        attacks, defenses = (list(dict.fromkeys(side)) for side in zip(*pairs, strict=True))
        several = f" ({len(pairs)} {unit})" if len(pairs) > 1 else ""
        yield f"{_named(attacks, 'attacks')} against {_named(defenses, 'defenses')}{several}: {reason}"


def _named(names: list[str], kind: str) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} {kind}"
