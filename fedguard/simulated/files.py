"""What a suite names a file for: a graph, or when devices are there."""

from __future__ import annotations

from pathlib import Path

from fedguard.errors import ConfigError, oneline


def content(file: str, most: int, shorter: str) -> bytes:
    """What a file holds.

    Args:
        most: how many bytes it may have.
        shorter: how to mend one that has more.

    Raises:
        ConfigError: there is none, it cannot be read, or it holds more.
    """
    path = Path(file).expanduser()
    try:
        if not path.is_file():
            raise ConfigError(
                f"{file}: no such file. Paths are relative to where `fedguard` was started: {Path.cwd()}."
            )
        with path.open("rb") as opened:
            found = opened.read(most + 1)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{file}: cannot be read: {oneline(error)}. Write it as comma-separated values.") from None
    if len(found) > most:
        raise ConfigError(f"{file}: expected at most {most:,} bytes; got more. {shorter}")
    return found
