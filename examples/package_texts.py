"""Descriptions of Debian's packages by section and maintainer, for examples/results/packages.yaml: a table and a tokenizer.

On Debian, from the folder where `fedguard run` is started:

    apt-cache dumpavail | python examples/package_texts.py

It writes package_texts.csv (`text`, `label`, `client`) and package_texts.json, words as tokens. A text is the one-line
description of a source package's first binary package, its label one of eight sections, its client the maintainer, who has at
least 20 texts. The descriptions are under the licenses of their packages, so FedGuard ships none; another release of Debian
gives other texts.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

SECTIONS = {"fonts", "games", "graphics", "math", "net", "science", "sound", "text"}
#: Texts that a maintainer has at least.
LEAST = 20
#: Tokens in all, with the two that are no words.
VOCABULARY = 2000
PADDING, UNKNOWN = "[PAD]", "[UNK]"


def described(index: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Description, section and maintainer of each source package's first entry in an index of packages."""
    seen, fields = set(), dict[str, str]()
    for line in (*index, ""):
        if found := re.match(r"(Package|Source|Description|Section|Maintainer): (.*)", line):
            fields[found[1]] = found[2].strip()
        elif not line.strip() and fields:
            source = fields.get("Source", fields.get("Package", "")).split(" ")[0]
            if source not in seen and {"Description", "Section", "Maintainer"} <= fields.keys():
                seen.add(source)
                yield fields["Description"], fields["Section"], fields["Maintainer"]
            fields = {}


def tokenizer(texts: Iterable[str]) -> dict[str, object]:
    """A tokenizer.json whose tokens are the most frequent words in lower case; ties go by the alphabet."""
    counts = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]+", text.lower()))
    words = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - 2]
    vocabulary = {word: number for number, word in enumerate([PADDING, UNKNOWN, *words])}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
    }


if __name__ == "__main__":
    rows = [row for row in described(sys.stdin) if row[1] in SECTIONS]
    texts = Counter(row[2] for row in rows)
    rows = [row for row in rows if texts[row[2]] >= LEAST]
    if not rows:
        sys.exit(
            "package_texts.py: expected an index of packages on standard input; got none. Run apt-get update first."
        )
    with Path("package_texts.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label", "client"), *rows])
    Path("package_texts.json").write_text(json.dumps(tokenizer(row[0] for row in rows)), encoding="utf-8")
    print(f"package_texts.csv: {len(rows)} texts of {len({row[2] for row in rows})} maintainers")
