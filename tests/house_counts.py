"""What a machine counts of the house: ``python -m tests.house_counts`` prints the table, ``--list`` also what it counts.

Counted are the files of the product, by their syntax trees: no file is imported, and nothing is run.
"""

from __future__ import annotations

import argparse
import ast
import gc
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from tests.root import ROOT

PRODUCT = ("fedguard", "attacks", "defenses", "app")

#: The rooms that need comments most, by the folders of each.
ROOMS = {
    "engines": ("fedguard/tasks/engines",),
    "accountants": ("fedguard/privacy",),
    "protocol": ("fedguard/secagg",),
    "event code": ("fedguard/simulated", "fedguard/architectures/systems"),
    "rules": ("defenses/aggregators",),
    "contracts": ("fedguard/contracts",),
}

#: Participles that do not end in "ed", of verbs that name functions.
IRREGULAR = """
told kept made found shown sent drawn held given taken seen known left lost met paid said sold built bought brought caught chosen
dealt done felt gone heard hidden laid led lent meant sought spent stood taught thought thrown understood won written worn woven
begun borne broken driven fallen flown forgotten frozen grown risen spoken stolen sworn torn shaken overheard bound wound spun
swept swung fed bred sunk shrunk dug hung stuck struck slept bent lit
""".split()  # noqa: SIM905  a list with quotes is harder to read
#: Words in "ed" that are none.
NO_PARTICIPLE = ("seed", "need", "feed", "speed", "embed", "bleed", "exceed", "proceed", "shed")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_participle(name: str) -> bool:
    """Whether the first word of a function's name is a past participle: `told_among`, `_released`."""
    word = name.strip("_").split("_")[0]
    return word in IRREGULAR or (word.endswith("ed") and word not in NO_PARTICIPLE)


@dataclass(frozen=True)
class File:
    """One file of the product, with its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """As `ast.walk` has them, without loads and stores, in half its time."""
        found: list[ast.AST] = [self.tree]
        for node in found:  # which grows meanwhile
            for value in vars(node).values():
                if isinstance(value, list):
                    found += [one for one in value if isinstance(one, ast.AST)]
                elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                    found.append(value)
        return found

    @cached_property
    def module(self) -> str:
        """The name under which it is imported."""
        name = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return name if name.split(".")[0] == "fedguard" else f"fedguard.{name}"

    @property
    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))

    @property
    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))

    @cached_property
    def lines(self) -> Counter[str]:
        """How many lines are ``code``, ``comment``, ``docstring`` and ``blank``; a comment beside code counts as code."""
        docstrings: set[int] = set()
        strings: set[int] = set()
        for node in self.nodes:
            if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
                strings.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
            first = node.body[0] if isinstance(node, ast.Module | ast.ClassDef | Function) and node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        counted: Counter[str] = Counter()
        for number, line in enumerate(self.text.splitlines(), 1):
            stripped = line.strip()
            if number in docstrings:
                counted["docstring"] += 1
            elif not stripped:
                counted["blank"] += 1
            else:
                counted["comment" if stripped.startswith("#") and number not in strings else "code"] += 1
        return counted

    def imports(self, *, typing: bool) -> Iterator[str]:
        """The modules imported as this one is; with ``typing`` also those imported for type checkers alone."""
        waiting: list[ast.AST] = list(self.tree.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import):
                yield from (name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from (f"{node.module}.{name.name}" for name in node.names)
            elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                waiting += [*(node.body if typing else []), *node.orelse]
            elif not isinstance(node, Function):  # what a function imports is imported when it is called
                waiting += ast.iter_child_nodes(node)


@cache
def files() -> tuple[File, ...]:
    """The files of the product, read once."""
    found = sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in found}
    gc.disable()  # which would look again and again through trees that all stay: two thirds of the time
    try:
        return tuple(File(path, text, ast.parse(text)) for path, text in texts.items())
    finally:
        gc.enable()


def files_in(room: str) -> list[File]:
    return [file for file in files() if file.path.startswith(tuple(f"{folder}/" for folder in ROOMS[room]))]


def comment_rate(among: Sequence[File]) -> float:
    """Lines of comment for each 100 lines of code."""
    return 100 * sum(file.lines["comment"] for file in among) / sum(file.lines["code"] for file in among)


def participles(among: Sequence[File]) -> list[str]:
    return [
        f"{file.path}:{one.lineno} {one.name}" for file in among for one in file.functions if is_participle(one.name)
    ]


@cache
def names_with_two_meanings() -> dict[str, list[str]]:
    """Names of classes that are defined more than once, with the places."""
    places = defaultdict(list)
    for file in files():
        for one in file.classes:
            places[one.name].append(f"{file.path}:{one.lineno}")
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def class_names() -> set[str]:
    return {one.name for file in files() for one in file.classes}


def public(names: Sequence[str] | set[str] | Mapping[str, object]) -> list[str]:
    return [name for name in names if not name.startswith("_")]


def function_lengths() -> list[int]:
    """Lines of each function from its ``def`` to its end, without its docstring and its lines of comment."""
    return sorted(_length(one, file.text.splitlines()) for file in files() for one in file.functions)


def _length(function: Function, lines: Sequence[str]) -> int:
    docstring = function.body[0] if ast.get_docstring(function, clean=False) is not None else None
    comments = sum(line.lstrip().startswith("#") for line in lines[function.lineno - 1 : function.end_lineno])
    return _lines_of(function) - (_lines_of(docstring) if docstring else 0) - comments


def _lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def import_cycles(*, typing: bool) -> list[list[str]]:
    """Groups of modules each of which imports, directly or by others, all the others of its group.

    That a module's package is imported before it is left out: else each package that imports a part of itself were one.
    """
    known = {file.module for file in files()}
    imports: dict[str, set[str]] = {}
    for file in files():
        named = (name if name in known else name.rpartition(".")[0] for name in file.imports(typing=typing))
        imports[file.module] = {name for name in named if name in known} - {file.module}
    return [sorted(group) for group in _strongly_connected(imports) if len(group) > 1]


def _strongly_connected(edges: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Tarjan's algorithm, without recursion."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in sorted(edges):
        if root in order:
            continue
        work = [(root, iter(sorted(edges[root])))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            new = next((target for target in targets if target not in order or target in on_stack), None)
            if new is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    group = stack[stack.index(node) :]
                    del stack[stack.index(node) :]
                    on_stack.difference_update(group)
                    yield group
            elif new in order:
                low[node] = min(low[node], order[new])
            else:
                order[new] = low[new] = len(order)
                stack.append(new)
                on_stack.add(new)
                work.append((new, iter(sorted(edges[new]))))


def contract_members() -> int:
    """Public methods and fields in the bodies of the classes of ``fedguard/contracts``."""
    bodies = (one.body for file in files_in("contracts") for one in file.classes)
    return sum(len(public([name])) for body in bodies for node in body for name in _defined(node))


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, Function):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def contract_exports() -> int:
    init = next(file for file in files() if file.path == "fedguard/contracts/__init__.py")
    for node in init.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return len(ast.literal_eval(node.value))
    raise AssertionError("fedguard/contracts/__init__.py: expected __all__")


def table() -> list[tuple[str, str]]:
    """The rows of the table: what is counted, and its value."""
    sizes = sorted(sum(file.lines.values()) for file in files())
    lengths = function_lengths()
    twice, names = names_with_two_meanings(), class_names()
    by_participle = participles(files())
    cycles = {typing: import_cycles(typing=typing) for typing in (False, True)}
    return [
        ("files; lines", f"{len(sizes):,}; {sum(sizes):,}"),
        ("lines of code, without comments and docstrings", f"{sum(file.lines['code'] for file in files()):,}"),
        ("lines of a file: median, 90 %, largest", _spread(sizes)),
        ("functions; lines of one: median, 90 %, largest", f"{len(lengths):,}; {_spread(lengths)}"),
        ("functions over 40 lines", f"{_over(lengths)} ({100 * _over(lengths) / len(lengths):.1f} %)"),
        ("class names with two or more meanings, public", _share(len(public(twice)), len(public(names)))),
        ("class names with two or more meanings, all", _share(len(twice), len(names))),
        ("functions named by a participle", _share(len(by_participle), len(lengths))),
        ("comment lines in 100 lines of code", f"{comment_rate(files()):.1f}"),
        *((f"  in the {room}", f"{comment_rate(files_in(room)):.1f}") for room in ROOMS),
        ("contracts: classes", f"{sum(1 for file in files_in('contracts') for _ in file.classes)}"),
        ("contracts: members", f"{contract_members()}"),
        ("contracts: exports", f"{contract_exports()}"),
        ("import cycles: modules in each", _groups(cycles[False])),
        ("import cycles with those under TYPE_CHECKING", _groups(cycles[True])),
    ]


def _over(lengths: Sequence[int]) -> int:
    return sum(length > 40 for length in lengths)


def _spread(values: Sequence[int]) -> str:
    return f"{values[len(values) // 2]}, {values[9 * len(values) // 10]}, {values[-1]}"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)"


def _groups(cycles: Sequence[Sequence[str]]) -> str:
    return ", ".join(str(len(group)) for group in cycles) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description="Count what the house is made of.")
    parser.add_argument(
        "--list", action="store_true", help="Also list class names, participles and cycles with places."
    )
    listed = parser.parse_args().list
    for what, value in table():
        print(f"{what:52} {value}")
    if listed:
        for name, places in names_with_two_meanings().items():
            print(f"\nclass {name}\n  " + "\n  ".join(places))
        print("\nfunctions named by a participle\n  " + "\n  ".join(participles(files())))
        for group in import_cycles(typing=True):
            print("\nimport cycle\n  " + "\n  ".join(group))


if __name__ == "__main__":
    main()
