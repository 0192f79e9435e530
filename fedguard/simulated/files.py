"""Files named in a suite: a graph, or the availability of devices."""

from __future__ import annotations

from pathlib import Path

from fedguard.errors import ConfigError, oneline


def content(file: str, most: int, shorter: str) -> bytes:
    """Content of a file.

    Args:
        most: largest number of bytes accepted.
        shorter: remedy named in the error if the file is larger.

    Raises:
        ConfigError: the file does not exist, cannot be read, or is too large.
    """
    try:
        path = Path(file).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"{file}: no such file. Paths are relative to where `fedguard` was started: {Path.cwd()}."
            )
        with path.open("rb") as opened:
            # One byte more shows that a file is too large without reading all of it
            found = opened.read(most + 1)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{file}: cannot be read: {oneline(error)}. Write it as comma-separated values.") from None
    if len(found) > most:
        raise ConfigError(f"{file}: expected at most {most:,} bytes; got more. {shorter}")
    return found
