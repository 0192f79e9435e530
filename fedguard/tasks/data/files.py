"""Files that hold data: whether they are there, and what they are where they are taken for another kind."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedguard.errors import ConfigError, oneline


def require_path(path: str | Path, what: str) -> Path:
    """The path, if a ``what`` is there: a file or a folder.

    Raises:
        ConfigError: nothing is, or something else.
    """
    try:
        path = Path(path).expanduser()
        there = path.is_dir() if what == "folder" else path.is_file()
        other = path.exists()
    except (OSError, RuntimeError) as error:  # no such user behind ~, a folder that may not be entered
        raise ConfigError(f"{path}: cannot be opened: {oneline(error)}.") from None
    if not there and other:
        raise ConfigError(f"{path}: expected a {what}; this is {'a folder' if path.is_dir() else 'something else'}.")
    if not there:
        raise ConfigError(f"{path}: no such {what}. Paths are relative to where `fedguard` was started: {Path.cwd()}.")
    return path


#: By its first bytes, what a file is that was taken for another, and what to do.
_SIGNS = {
    b"\x1f\x8b": "it is gzipped: unpack it",
    b"\xef\xbb\xbf": "it begins with a byte order mark: write it without",
    b"\xff\xfe\0\0": "it is UTF-32: write it as UTF-8",
    b"\0\0\xfe\xff": "it is UTF-32: write it as UTF-8",
    b"\xff\xfe": "it is UTF-16: write it as UTF-8",
    b"\xfe\xff": "it is UTF-16: write it as UTF-8",
    b"PK\x03\x04": "it is a zip archive, as files of Excel are: unpack it, or save it as text",
    b"\x80": "it holds Python objects, which are not read: to read them is to run what they say",
    b"<": "it is a web page or XML",
    b"version https://git-lfs": "it is a pointer of Git LFS: fetch the file itself",
}


def regular(file: Path) -> Path:
    """The file, if it is one: nobody waits for a pipe.

    Raises:
        ConfigError: it is something else.
    """
    if not file.is_file():
        raise ConfigError(f"{file}: expected a file; this is a folder, a pipe, or a link that leads nowhere.")
    return file


def check_digest(file: Path, digest: str, *content: bytes) -> None:
    """Check that a published file is the one it should be.

    Args:
        digest: the published SHA-256, in hexadecimal digits.
        content: what was read, part by part.

    Raises:
        ConfigError: it is another one.
    """
    if (got := hashlib.sha256(b"".join(content)).hexdigest()) != digest:
        raise ConfigError(
            f"{file}: expected content with SHA-256 {digest[:16]}...; got {got[:16]}... It is another file, or damaged: get it "
            "again."
        )


def why_not(file: Path, error: Exception) -> str:
    """Why a file could not be read: what it is, as far as its first bytes tell, or what the error says."""
    if told := sniff_format(file):
        return told
    if isinstance(error, UnicodeDecodeError):
        return f"its byte {error.start + 1}, {error.object[error.start]:#04x}, is no UTF-8: write it as UTF-8"
    return oneline(error)


def sniff_format(file: Path) -> str:
    """What a file is by its first bytes, if these are of another kind; ''."""
    try:
        with file.open("rb") as stream:
            head = stream.read(32)
    except OSError:
        return ""
    return next((said for sign, said in _SIGNS.items() if head.startswith(sign)), "" if head else "it is empty")


def check_text(file: Path, text: str) -> None:
    """Raise `ConfigError` where a text, or its beginning, shows that the file is none in UTF-8."""
    # Two of five, since a text may hold a few on purpose; of Latin letters, UTF-16 makes every second one
    if 5 * text.count("\0") > 2 * len(text):
        told = sniff_format(file) or "it holds the character 0, as UTF-16 and UTF-32 do: write it as UTF-8"
        raise ConfigError(f"{file}: expected a text in UTF-8: {told}.")
