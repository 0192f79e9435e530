"""Suites that a person might write by mistake, or somebody in bad faith: the examples, each changed at one place.

    python -m tests.fuzz.suites --count 600 --seed 0

reads each of them as ``fedguard check`` does, and prints those that are not answered by a plan or by one clear line.
"""

from __future__ import annotations

import argparse
import copy
import io
import os
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from fedguard.bench.running.check import explain_refusals, render_plan
from fedguard.config import plan, read_document, read_suite
from fedguard.errors import FedGuardError
from tests.fuzz import Late, within

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

#: No suite may take longer, in seconds of the processor; to find the noise of several epsilons takes the most of it.
LIMIT = 30.0

#: In place of a value, as text of YAML.
VALUES = (
    "", "null", "~", "true", "-1", "0", "1", "1.5", "-0.0", "1e-300", "1e300", ".inf", ".nan", "010", "0x1F", "1:30", "0b_", "1_000",
    "1000000000", "1" * 5000, "9" * 30, "[]", "{}", "[[]]", "[1, 1]", "{a: 1}", "{name: }", "{name: 3}", "{name: none}", "!!float x",
    "!!python/object:os.system x", "!!binary abc", "!!set {a, b}", "!!timestamp 2026-01-01", "2026-01-01", "'" + "x" * 3000 + "'", "&a [*a]",
    "*nowhere", "'\\0'", '"\\0"', '"\\e[31mred"', "off", "None", "none", "nonsense", "nnm >> ", ">> mean", "mean >> mean", "alie(z=)",
    "alie(z=print)", "alie(1)", "alie(**{})", "mean()()", "()", "lambda: 0", "__import__('os')", "alie(z=1e400)", "alie(z='x')", "a:b",
    "os:system", "json:dumps", "openml:", "[none, none]", "{[1]: 2}", "? [a]\n: b", "(" * 300, "[" * 500, "{" * 500, "a.b.c", "ä", "-", "# x",
    "[mean, [median]]", "{name: alie, z: {name: alie}}", "{name: gaussian, scale: [1, 2]}", "1e", "+", ".", "..", "../../x", "@", "`", "%",
)  # fmt: skip

#: In place of a key.
KEYS = (
    "my-key", "batch-size", "1", "1.5", "true", "null", "''", "' '", "a.b", "é", "name", "kind", "seeds", "[1]", "{a: 1}", "<<", "__class__",
    "self", "training", "x" * 2000, '"\\0"', '"\\e[31m"', "-1", "matrix", "training.rounds", "for", "class", "2026-01-01", ".", "..",
)  # fmt: skip

#: Whole files.
FILES = (
    b"", b"\n", b"# only a comment\n", b"---\n", b"--- 1\n--- 2\n", b"[]", b"a", b"\x00", b"\xff\xfe", b"\xef\xbb\xbfname: x\n",
    b"name: x\x00\n", b"seeds: 1000000\n", b"seeds: 1:30\n", b"training: {rounds: 010}\n", b"training: {lr: true}\n",
    b"a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\n"
    b"d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d]\nmatrix: {attack: [*e, *e, *e]}\n",
    b"matrix: &a\n  attack: *a\n", b"[" * 100_000, b"{a: " * 5_000, b"a: " * 50, b"- " * 20_000, b"name: " + b"9" * 5_000_000,
    b"matrix:\n  training.rounds: [" + b",".join(b"%d" % n for n in range(1, 489)) + b"]\n  seeds: [1]\n",
    b"matrix:\n  training.rounds: [" + b",".join(b"%d" % n for n in range(1, 489)) + b"]\n  clients.total: ["
    + b",".join(b"%d" % n for n in range(1, 489)) + b"]\n",
    b"training: {local_epochs: 1000000000}\n", b"training: {rounds: 1000000000000}\n", b"clients: {total: 1000000000}\n",
    b"protocol: {privacy: {name: record, clip: 1.0, noise_multiplier: 1.0e-300, delta: 1.0e-5}}\n",
    b"protocol: {privacy: {name: client, clip: 1.0, epsilon: 1.0e-300, delta: 1.0e-5}}\n",
    b"my-key: 1\n", b"training: {batch-size: 1}\n", b"matrix: {attack: alie}\n", b"matrix: {nonsense: [1]}\n", b"matrix: {'': [1]}\n",
    b"matrix: {training: [1]}\n", b"matrix: {training..lr: [1]}\n", b"matrix: {training.lr.x: [1]}\n", b"plugins: [os]\n", b"plugins: ['']\n",
    b"plugins: ['..x']\n", b"plugins: [json.no_such]\n", b"name: ../../x\n", b"schema: 2\n", b"defense: [nnm, [mean]]\n", b"\t", b"a:\n\tb: 1\n",
    b"server: {root_data: 100000000}\n", b"protocol: {secure_aggregation: {groups: 1000000000}}\n",
    b"protocol: {secure_aggregation: full, encoding: {bits: 1000000}}\n", b"task: {model: {name: mlp, hidden: [1000000000, 1000000000]}}\n",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One changed suite: what was changed, and the bytes of the file."""

    what: str
    content: bytes


def cases(count: int, seed: int) -> Iterator[Case]:
    """The whole files, then as many changed examples as make ``count``."""
    yield from (Case(f"file {content[:40]!r}", content) for content in FILES)
    rng = random.Random(seed)
    for _ in range(max(count - len(FILES), 0)):
        path = rng.choice(EXAMPLES)
        yield rng.choice((_value, _value, _key, _structure, _text))(path, rng)


def answer(path: Path, deep: bool = False) -> str:
    """How the suite at ``path`` is answered: by the number of its cells, or by the one line of an error.

    Args:
        deep: whether all is done that `fedguard check` does but for its estimate, which trains.

    Raises:
        AssertionError: by anything else: another exception, several lines, a line without a place, or too long a time.
    """
    placed = False
    try:
        with within(LIMIT, signal.ITIMER_PROF):
            document = read_document(path)
            laid_out = plan(document, read_suite(document))
            placed = True  # what only the data or the noise can tell is told of a cell, not of a line
            if deep:
                Console(file=io.StringIO(), width=120).print(render_plan(laid_out, explain_refusals(laid_out)))
            return f"{len(laid_out.cells)} cells"
    except FedGuardError as error:
        said = str(error)
        assert "\n" not in said, f"several lines: {said[:300]!r}"
        assert said.isprintable(), f"what no terminal should be sent: {said[:300]!r}"
        assert len(said) <= 1000, f"a line of {len(said)} characters: {said[:200]!r}"
        assert placed or str(path) in said, f"no place: {said[:300]!r}"
        return said
    except (Exception, Late) as error:
        raise AssertionError(f"{type(error).__name__}: {str(error)[:200]!r}") from error


def _value(path: Path, rng: random.Random) -> Case:
    """One value, somewhere, becomes another."""
    lines = path.read_text().splitlines()
    places = [number for number, line in enumerate(lines) if ":" in line and not line.lstrip().startswith("#")]
    number = rng.choice(places)
    head, _, _ = lines[number].partition(":")
    value = rng.choice(VALUES)
    lines[number] = f"{head}: {value}"
    return Case(f"{path.name}:{number + 1}: {head.strip()}: {value[:40]}", "\n".join(lines).encode())


def _key(path: Path, rng: random.Random) -> Case:
    """A key is added, or takes another's place, somewhere in the tree."""
    data = yaml.safe_load(path.read_text())
    key = rng.choice(KEYS)
    node = rng.choice([one for one in _nodes(data) if isinstance(one, dict) and one])
    old = rng.choice(list(node))
    node["PLACE"] = node.pop(old) if rng.random() < 0.5 else copy.deepcopy(node[old])
    text = yaml.safe_dump(data, sort_keys=False).replace("PLACE:", f"{key}:")
    return Case(f"{path.name}: key {key[:40]} for {old}", text.encode())


def _structure(path: Path, rng: random.Random) -> Case:
    """A part of the tree is put where it does not belong, or left out."""
    data = yaml.safe_load(path.read_text())
    containers = [one for one in _nodes(data) if isinstance(one, dict | list) and one]
    node, other = rng.choice(containers), rng.choice(list(_nodes(data)))
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    key = rng.choice(keys)
    if rng.random() < 0.3:
        del node[key]
        what = f"without {key}"
    else:
        node[key] = copy.deepcopy(other)
        what = f"{key} is {str(other)[:40]}"
    return Case(f"{path.name}: {what}", yaml.safe_dump(data, sort_keys=False).encode())


def _text(path: Path, rng: random.Random) -> Case:
    """Some bytes are lost, doubled or changed."""
    content = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(content))
        if rng.random() < 0.3:
            del content[at : at + rng.randint(1, 20)]
        elif rng.random() < 0.5:
            content[at:at] = content[at : at + rng.randint(1, 20)]
        else:
            content[at] = (
                rng.choice(b"\x00\x07\x1b\t\n :[]{}&*!|>'\"%@`#-?,\xff\xc3")
                if rng.random() < 0.8
                else rng.randrange(256)
            )
    return Case(f"{path.name}: bytes", bytes(content))


def _nodes(data: Any) -> Iterator[Any]:
    yield data
    for one in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _nodes(one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "fuzz", help="where a suite that was answered badly is kept"
    )
    parser.add_argument("--deep", type=int, default=10, help="one in so many is checked, not only read; 0 for none")
    parser.add_argument("--show", action="store_true", help="print each answer")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(given.folder)
    bad = 0
    for number, case in enumerate(cases(given.count, given.seed)):
        path = given.folder / f"case-{number}.yaml"
        path.write_bytes(case.content)
        try:
            said = answer(path, deep=bool(given.deep) and number % given.deep == 0)
            path.unlink()
            if given.show:
                sys.stdout.write(f"{number} {case.what[:60]} -> {said[:300]}\n")
        except AssertionError as error:
            bad += 1
            sys.stdout.write(f"{path}: {case.what[:80]!r}: {error}\n")
    sys.stdout.write(f"{given.count} suites, {bad} answered badly\n")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
