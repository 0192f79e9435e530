"""The file of a first model as a suite names it: by its path, and by the digest that makes another file another cell."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from fedguard.errors import ConfigError, oneline

#: Between the path and the first 16 hexadecimal digits of the content's SHA-256
MARK = "@sha256:"


def pin(named: str) -> str:
    """``FILE@sha256:DIGEST`` of ``FILE``, or of itself.

    Raises:
        ConfigError: the file cannot be read, or its content has another digest than the given one.
    """
    file, _, given = named.partition(MARK)
    found = _digest(file, *_stamp(file))
    _require_digest(file, given or found, found)
    return f"{file}{MARK}{found}"


def read_pinned(pinned: str) -> tuple[str, bytes]:
    """The path and the content of a file that `pin` has named. Raises as `pin`."""
    file, _, given = pinned.partition(MARK)
    _stamp(file)
    # Of what was read, not of the file: it may change meanwhile, or change and keep its time and size
    held = _read(file)
    _require_digest(file, given, _digest_of(held))
    return file, held


def _require_digest(file: str, given: str, found: str) -> None:
    if given != found:
        raise ConfigError(
            f"training.first_model: {file}: expected content with the digest {given}; got {found}. Bring that file back, or "
            "name the file without a digest, which makes it another cell."
        )


def _stamp(file: str) -> tuple[int, int]:
    try:
        path = Path(file).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"training.first_model: {file}: no such file. Paths are relative to where `fedguard` was started: {Path.cwd()}."
            )
        found = path.stat()
    except (OSError, RuntimeError, ValueError) as error:  # no such user behind ~, a folder that may not be entered
        raise ConfigError(f"training.first_model: {file}: cannot be read: {oneline(error)}.") from None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=64)
def _digest(file: str, changed: int, size: int) -> str:  # noqa: ARG001  parts of the cache's key
    return _digest_of(_read(file))


def _digest_of(held: bytes) -> str:
    return hashlib.sha256(held).hexdigest()[:16]


def _read(file: str) -> bytes:
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"training.first_model: {file}: cannot be read: {oneline(error)}.") from None
