"""What users read keeps to the words of docs/glossary.md: retired words become fewer, and none comes back.

`tests/words.csv` allows each retired word as many uses as it had when the file was last written. The test fails if a word is
used more often, and if it is used less often by more than a tenth: then ``python -m tests.house.test_words --lower`` writes the new
counts, which never rises. ``python -m tests.house.test_words told`` lists where a word is used.
"""

from __future__ import annotations

import argparse
import ast
import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest
from typer.main import get_command

from fedguard import cli
from fedguard.config.schema import Suite
from fedguard.metrics.figures import FIGURES
from tests.house_counts import File, Function, files
from tests.root import ROOT

TABLE = ROOT / "tests" / "words.csv"
GLOSSARY = ROOT / "docs" / "glossary.md"

#: A retired word: the regular expression that finds it, and what to say instead.
WORDS = {
    "told": (r"told", "assumes f; knows; is given; `told apart`: separated"),
    "figure": (r"(?<!fedguard )figures?(?! \d)", "metric for a quantity, chart for a drawing, number for a number"),
    "corner": (r"(?<!left )(?<!right )corners?", "control"),
    "stand": (r"st(?:ands?|ood)", "is; is listed; replaces; of defenses: withstands"),
    "so many": (r"so[- ]man(?:y|ieth)", "the number itself, or: the k-th"),
    "that of": (r"(?:that|those) of|those (?:that|who|whose|which)", "repeat the noun"),
    "where that are all": (r"where that are all", "if none is left"),
    "worth the name": (r"worth the name", "no interval: at least three seeds are needed"),
    "of yours": (r"of (?:yours|theirs)", "your; their"),
    "mend": (r"mend(?:s|ed|ing)?", "fix, remedy"),
    "looker": (r"(?:looker|lookout|ear|album)s?", "honest-but-curious server, observer, eavesdropper"),
    "hear": (r"(?:over)?hear(?:s|d|ing)?", "receives; eavesdrops"),
    "falls silent": (r"f(?:a|e)ll(?:s|en|ing)? silent", "drops out"),
    "reckon": (r"reckon(?:s|ed|ing)?", "assumes"),
    "hostile": (r"hostile", "malicious"),
    "crash test": (r"crash[- ]test\w*", "evaluation"),
    "by the means": (r"by the means|keeps? the most", "highest mean; leading group"),
    "kind of noise": (r"kinds? of noise", "record, client or distributed differential privacy"),
    "way of training": (r"ways? of training together", "architecture"),
    "takes from sight": (r"tak(?:es?|en) from sight|out of sight", "hides"),
    "no matter of": (r"no matter of", "does not concern"),
    "late by": (r"late by", "staleness"),
    "contest": (r"contests?", "attacks on secure aggregation"),
    "other hands": (r"other hands", "another random stream"),
    "behaviour": (r"(?:mis)?behaviours?", "behavior"),
    "neighbour": (r"neighbour\w*", "neighbor"),
    "colour": (r"(?:colour|favour|honour|labour|tumour|flavour|rigour|vigour)\w*", "color, favor, ..."),
    "centre": (r"(?:centre|metre|fibre|litre)\w*", "center, ..."),
    "-ise": (
        r"(?:de)?(?:quant|normal|central|recogn|regular|general|initial|optim|minim|maxim|random|standard|serial|summar|organ|"
        r"penal|synchron|priorit|factor|vector|character|memor|stabil|symmetr|personal|real|special|util|discret|categor|"
        r"formal|material|linear|visual|hypothes|parametr|anonym|author|emphas|equal|local|saniti|tok?en|crystall|binar)"
        r"is(?:e|ed|es|er|ers|ing|ations?|able)",
        "-ize",
    ),
    "analyse": (r"(?:analys|paralys|catalys)(?:e|ed|er|ing)", "analyze"),
    "catalogue": (r"catalogues?", "catalog"),
    "judgement": (r"judgements?|acknowledgements?", "judgment; verdict"),
    "-lled": (r"(?:label|model|signal|cancel|travel|level|channel)l(?:ed|ing|er)(?!ation)", "labeled, modeling, ..."),
    "grey": (
        r"grey\w*|defences?|licences?|artefacts?|programmes?|learnt|whilst|fulfil|amongst|cheques?|sceptic\w*",
        "gray, ...",
    ),
}

#: All of them at once, on text in lower case: the group that is found has the number of the word.
_ANY = re.compile(rf"(?<![\w,-])(?:{'|'.join(f'({expression})' for expression, _ in WORDS.values())})(?!\w)")


def words_in(text: str) -> list[tuple[str, int]]:
    """The retired words in prose, and where each begins."""
    names = tuple(WORDS)
    return [(names[(found.lastindex or 1) - 1], found.start()) for found in _ANY.finditer(text.lower())]


#: What does not count: code, formulae, names of parameters, addresses, and words with an underscore or a dot in them.
_FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2\s*$", re.MULTILINE | re.DOTALL)
_NOT_PROSE = re.compile(
    r"``.+?``|`[^`]*`|\$\$.+?\$\$|\$[^$\n]+\$|<[^>\n]+>|\]\([^)\n]*\)|https?://\S+|\w+(?:[._/]\w+)+|'[\w.*-]+'|\"[\w.*-]+\"",
    re.DOTALL,
)
_PARAMETERS = re.compile(r"^ +\w+(?:, \w+)*:(?= )", re.MULTILINE)

#: Functions that make an error of a message, beside classes by the name of one.
RAISERS = {"require", "fail", "contract_error", "UnknownName", "MissingExtra", "Fault", "refuse", "UndeclaredNeeds"}


def prose(text: str) -> str:
    """What of a text a reader reads as words, with its lines where they were."""
    blank = re.compile(r"[^\n]+")
    for code in (_FENCED, _NOT_PROSE, _PARAMETERS):
        text = code.sub(lambda found: blank.sub("_", found[0]), text)
    return text


Text = tuple[str, str]  # where it stands, and what a reader reads of it


def documents() -> Iterator[Text]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        yield path.relative_to(ROOT).as_posix(), prose(path.read_text())


def messages_of(file: File) -> Iterator[Text]:
    """The literals in what is raised, and in calls of classes and functions that make errors."""
    spans = []
    for node in file.nodes:
        called = node.func if isinstance(node, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if (isinstance(node, ast.Raise) and node.exc) or name.endswith("Error") or name in RAISERS:
            spans.append(node)
    literals = {id(one): one for node in spans for one in ast.walk(node) if isinstance(one, ast.Constant)}
    for one in literals.values():
        if isinstance(one.value, str):
            yield f"{file.path}:{one.lineno}", prose(one.value)


def docstrings_of(file: File) -> Iterator[Text]:
    """Of public functions and classes, and of the public functions in these."""
    waiting: list[ast.AST] = [file.tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
                if said := ast.get_docstring(node):
                    yield f"{file.path}:{node.lineno}", prose(said)
                waiting += [node] if isinstance(node, ast.ClassDef) else []


def helps() -> Iterator[Text]:
    """What ``--help`` says: of each command, and of its options and arguments."""
    waiting = [("fedguard", get_command(cli.app))]
    while waiting:
        name, command = waiting.pop()
        yield f"{name} --help", prose(command.help or "")
        yield from ((f"{name} --help, {one.name}", prose(getattr(one, "help", None) or "")) for one in command.params)
        waiting += [(f"{name} {below}", one) for below, one in getattr(command, "commands", {}).items()]


AREAS = {
    "docs": documents,
    "help": helps,
    "messages": lambda: (one for file in files() for one in messages_of(file)),
    "docstrings": lambda: (
        one for file in files() if not file.path.startswith("fedguard/commands/") for one in docstrings_of(file)
    ),  # those of commands are their help
}


@cache
def uses(area: str) -> dict[str, list[str]]:
    """By retired word, where it is used."""
    found: dict[str, list[str]] = defaultdict(list)
    for where, text in AREAS[area]():
        for name, start in words_in(text):
            found[name].append(f"{where}:{text.count(chr(10), 0, start) + 1}" if area == "docs" else where)
    return found


@cache
def allowances() -> dict[str, dict[str, int]]:
    with TABLE.open(newline="") as rows:
        return {row["word"]: {area: int(row[area]) for area in AREAS} for row in csv.DictReader(rows)}


def wrong_counts(area: str) -> list[str]:
    """What is wrong with the counts of an area, one line for each word."""
    wrong = []
    for name, (_, instead) in WORDS.items():
        used, allowed = len(uses(area)[name]), allowances()[name][area]
        if used > allowed:
            places = ", ".join(uses(area)[name][:5])
            wrong.append(f"{name!r} in {area}: {used} uses, expected at most {allowed}; say: {instead} ({places} ...)")
        elif used < 0.9 * allowed:
            wrong.append(
                f"{name!r} in {area}: {used} uses of {allowed} allowed; run: python -m tests.house.test_words --lower"
            )
    return wrong


@pytest.mark.parametrize("area", AREAS)
def test_retired_words_become_fewer(area):
    """A word that is used more often than allowed is listed with what to say instead."""
    wrong = wrong_counts(area)
    assert not wrong, "\n".join([*wrong, "python -m tests.house.test_words WORD lists all uses."])


def test_what_makes_an_error_of_a_message_is_there():
    """By the name of today: else its messages would no longer be read, and every count would hold."""
    there = {node.name for file in files() for node in file.nodes if isinstance(node, Function | ast.ClassDef)}
    assert there >= RAISERS


def test_code_and_names_do_not_count():
    text = "told `told` ``told``\n```\ntold\n```\nx.told told_f [a](told.md) $told$ 'told' <a id=\"told\">"
    assert [name for name, _ in words_in(prose(text))] == ["told"]
    assert [name for name, _ in words_in(prose("Args:\n    told: of what it was told."))] == ["told"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It was Told so.", ["told"]),
        ("Quantised models misbehave; their behaviours do not.", ["-ise", "behaviour"]),
        ("Quantized neighbors recommend amendments and understand behavior.", []),
        ("Figure 3, the figure, and two figures", ["figure", "figure"]),
        ("its so-manieth training", ["so many"]),
        ("a pattern in the lower right corner, and the four corners", ["corner"]),
    ],
)
def test_words_are_found_without_false_alarms(text, found):
    assert [name for name, _ in words_in(prose(text))] == found


def test_names_in_the_glossary_exist():
    """Keys of suites, commands, options, metrics and files that the glossary shows are what the code knows."""
    rows = [line.split(" | ") for line in GLOSSARY.read_text().splitlines() if line.startswith("| <a")]
    assert len(rows) > 60 and all(len(row) == 4 for row in rows)
    commands, options = set(), set()
    waiting = [("fedguard", get_command(cli.app))]
    while waiting:
        name, command = waiting.pop()
        commands.add(name)
        options.update(option for one in command.params for option in one.opts)
        waiting += [(f"{name} {below}", one) for below, one in getattr(command, "commands", {}).items()]
    for _, _, where, _ in rows:
        for part in re.findall(r"`([^`]+)`", where):
            if part.startswith("fedguard "):
                words = [word for word in part.split() if re.fullmatch("[a-z]+", word)]
                assert any(" ".join(words[:length]) in commands for length in (2, 3)), part
            assert {option for option in part.split() if option.startswith("--")} <= options, part
        for listed in re.findall(r"YAML((?: ?,? ?`[\w.]+`)+)", where):
            for key in re.findall(r"`([\w.]+)`", listed):
                _known_key(key)
        for listed in re.findall(r"metrics? ((?:`\w+`(?:, )?)+)", where):
            assert set(re.findall(r"`(\w+)`", listed)) <= FIGURES.keys(), listed


def _known_key(key: str) -> None:
    value = Suite.model_validate({"network": {}})
    for name in key.split("."):
        if isinstance(value, dict):  # of metrics by name: any will do
            return
        assert hasattr(value, name), f"glossary: no key {key!r} in a suite"
        value = getattr(value, name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count retired words; list where one is used.")
    parser.add_argument("word", nargs="?", choices=WORDS, metavar="WORD", help=", ".join(WORDS))
    parser.add_argument("--lower", action="store_true", help="Lower the allowances in tests/words.csv to what is used.")
    asked = parser.parse_args()
    counted = {name: {area: len(uses(area)[name]) for area in AREAS} for name in WORDS}
    for area in AREAS if asked.word else ():
        print(f"{area}:", *uses(area)[asked.word], sep="\n  ")
    if asked.lower:
        known = allowances() if TABLE.exists() else {}
        with TABLE.open("w", newline="") as out:
            rows = csv.writer(out, lineterminator="\n")
            rows.writerow(["word", *AREAS])
            for name, areas in counted.items():
                rows.writerow([name, *(min(used, known.get(name, areas)[area]) for area, used in areas.items())])
    elif not asked.word:
        print(f"{'':20}", *(f"{area:>10}" for area in AREAS))
        for name, areas in counted.items():
            print(f"{name:20}", *(f"{used:10}" for used in areas.values()))
        print(f"{'all':20}", *(f"{sum(counted[name][area] for name in WORDS):10}" for area in AREAS))


if __name__ == "__main__":
    main()
