"""The tables of plants are what they say they are; whether each is noticed, `make mutants` and `make plants` find out."""

import ast
from functools import cache
from textwrap import dedent

import pytest

from tests.mutants.faults import FAULTS
from tests.mutants.planting import ROOT, Edit, PlantError, copied, plant, rows
from tests.mutants.plants import PLANTS
from tests.mutants.tree import PatternError, edited, is_known, places
from tests.mutants.watching import FROZEN, protocol_attacks


def test_plants_are_many_and_each_has_its_name_and_its_reason():
    names = [one.name for one in PLANTS]
    assert len(set(names)) == len(names) >= 40
    assert all(one.because and one.edits and one.first for one in PLANTS)
    faults = [one.name for one in FAULTS]
    assert len(set(faults)) == len(faults) >= 500


@pytest.mark.parametrize("one", [*PLANTS, *FAULTS], ids=lambda one: one.name)
def test_each_can_be_planted_in_the_source_as_it_is_and_where_all_is_renamed(one):
    for edit in one.edits:
        assert len(places(_tree(edit.file), edit.name, edit.before)) == 1, edit
        assert len(places(_renamed(edit.file), edit.name, edit.before)) == 1, edit
        assert ast.unparse(ast.parse(edit.before)) != ast.unparse(ast.parse(edit.after))


@pytest.mark.parametrize("one", [*PLANTS, *FAULTS], ids=lambda one: one.name)
def test_what_is_written_has_names_of_today(one):
    """A name that the pattern lacks stands for itself: if it is renamed, the plant is nonsense, which any test notices."""
    for edit in one.edits:
        libraries = {
            node.asname or node.name
            for one in ast.walk(_tree(edit.file))
            for node in getattr(one, "names", ())
            if isinstance(one, ast.Import)
        }
        brought = _names(ast.parse(edit.after), libraries) - _names(ast.parse(edit.before))
        made = _defined(ast.parse(edit.after))
        for role, name in brought:
            if is_known(role, name) or name in made or (role == "name" and len(name) == 1 and name.isupper()):
                continue
            own = role in ("name", "self") or name.startswith("_")  # of the file itself; others may be of any
            known = _defined(_tree(edit.file)) if own else _of_all()
            assert name in known, f"{edit}: nothing is called {name}"


def _names(tree, libraries=frozenset()):
    """Names that are read: of variables, of ``self``, and of what else has attributes, libraries apart."""
    names = {("name", node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = getattr(getattr(node.value, "func", node.value), "id", "")
            if owner not in {*libraries, "__import__"}:
                names.add(("self" if owner == "self" else "attribute", node.attr))
    return names


@cache
def _of_all():
    """All that any module of the product defines."""
    files = [file for part in ("fedguard", "attacks", "defenses", "app") for file in (ROOT / part).rglob("*.py")]
    return frozenset().union(*(_defined(_tree(file)) for file in files))


@cache
def _defined(tree):
    """Names of functions, classes, parameters, variables, fields, attributes that are set, and imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg | ast.keyword):
            found.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
    return frozenset(found)


def test_each_fault_has_quick_tests_near_it():
    assert all(one.near and (ROOT / path).exists() for one in FAULTS for path in one.near)


@cache
def _tree(file):
    return ast.parse((ROOT / file).read_text())


@cache
def _renamed(file):
    return Renamed().visit(_tree(file))


class Renamed(ast.NodeTransformer):
    """A tree in which all variables, attributes and keywords have other names."""

    def generic_visit(self, node):
        parts = {
            "Name": ("name", "id"),
            "arg": ("name", "arg"),
            "Attribute": ("attribute", "attr"),
            "keyword": ("keyword", "arg"),
        }
        role, part = parts.get(type(node).__name__, ("", ""))
        copy = type(node)(**{name: self._visited(value) for name, value in ast.iter_fields(node)})
        if role and getattr(copy, part) is not None and not is_known(role, getattr(copy, part)):
            setattr(copy, part, getattr(copy, part) + "_today")
        return copy

    def _visited(self, value):
        if isinstance(value, list):
            return [self._visited(one) for one in value]
        return self.visit(value) if isinstance(value, ast.AST) else value


def test_who_is_expected_to_notice_is_there_and_is_no_frozen_vector():
    attacks = set(protocol_attacks())
    for first in {one.first for one in PLANTS}:
        file, _, test = first.partition("::")
        if test:
            path = ROOT / (file if "/" in file else f"tests/secagg/{file}")
            assert f"def {test}(" in path.read_text() and first not in FROZEN, first
        else:
            assert first in attacks


SOURCE = dedent(
    """\
    LIMIT = 3

    class Krum:
        def scores(self, gram, f):
            # the nearest
            near = max(gram.n - f - 2, 1)
            if near < self.least:
                raise ValueError("few")
            return gram.sort(near, dim=1).sum(), near - 2

        def other(self, gram):
            return max(gram.n - self.f - 2, 1)
    """
)


@pytest.mark.parametrize(
    ("name", "before", "after", "old", "new"),
    [
        ("Krum.scores", "x.y - z - 2", "x.y - z - 1", "gram.n - f - 2", "gram.n - f - 1"),
        (
            "Krum.scores",
            "max(rows.number - told - 2, 1)",
            "max(told - rows.number, 1)",
            "gram.n - f - 2, 1",
            "f - gram.n, 1",
        ),
        ("Krum.scores", "max(A, 1)", "A", "max(gram.n - f - 2, 1)", "gram.n - f - 2"),
        ("Krum.scores", "A - f - 2", "B - f - 2", "gram.n - f - 2", "B - f - 2"),
        ("Krum.scores", "a = max(A, 1)\n...\nreturn B", "...\nreturn B", "near = max(gram.n - f - 2, 1)\n        ", ""),
        ("Krum.scores", "if a < self.b:\n    ...", "...", "if near < self.least:\n            raise", "raise"),
        ("Krum.scores", "a < self.b", "a <= self.b", "near < self", "near <= self"),
        (
            "Krum.scores",
            "a.sort(b, dim=1)",
            "b.sort(a, dim=math.inf)",
            "gram.sort(near, dim=1)",
            "near.sort(gram, dim=math.inf)",
        ),
        ("Krum.other", "gram.n - self.assumed", "gram.n + self.assumed", "gram.n - self.f", "gram.n + self.f"),
        ("Krum.other", "1", "2", "gram.n - self.f - 2, 1", "gram.n - self.f - 2, 2"),
        ("", "a = 3", "a = 4", "LIMIT = 3", "LIMIT = 4"),
    ],
)
def test_a_pattern_is_a_form_and_what_it_becomes_is_written_with_the_names_of_the_source(name, before, after, old, new):
    assert SOURCE.count(old) == 1
    expected = ast.unparse(ast.parse(SOURCE.replace(old, new))) + "\n"
    assert edited(SOURCE, name, before, after) == expected


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("Krum.scores", "1", "2", "found it 2 times"),
        ("Krum", "return A", "return 1", "found it 2 times"),
        ("Krum.scores", "x.y - z - 3", "x", "found it 0 times"),
        ("Krum.scores", "x.y - x - 2", "x", "found it 0 times"),
        ("Krum.scores", "x.sum(y, dim=1)", "x", "found it 0 times"),
        ("Krum.scores", "x.y.z - f - 2", "x", "found it 0 times"),
        ("Krum.scores", "x.y - z - 2", "x.y - z - 2", "nothing would change"),
        ("Krum.scores", "x.y - z - 2", "if x:\n    pass", "expected an expression"),
        ("Krum.score", "x - y", "x", "expected one score in Krum.score; found 0"),
        ("Median.reduce", "x", "y", "expected one Median in Median.reduce; found 0"),
    ],
)
def test_a_pattern_has_exactly_one_place(name, before, after, said):
    with pytest.raises(PatternError, match=said):
        edited(SOURCE, name, before, after)


def test_a_plant_that_would_be_none_is_an_error_and_the_checkout_stays_as_it_is(tmp_path):
    folder, module = copied(tmp_path), "fedguard.secagg.shamir"
    file = Edit(module, "", "", "").file
    before = (ROOT / file).read_text()
    plant([Edit(module, "", "2**256 + 297", "2**256 + 299")], folder)
    assert "PRIME = 2 ** 256 + 299" in (folder / file).read_text() and (ROOT / file).read_text() == before
    for text, other in (("2**256 + 297", "7"), ("import x", "import y")):
        with pytest.raises(PlantError, match=f"{file}: the module: expected this pattern exactly once"):
            plant([Edit(module, "", text, other)], folder)


def test_a_table_is_read_row_by_row():
    text = """\
# a remark
== tests/defenses/test_rules.py tests/gate

krum with one neighbor too many
    because: it counts; and: so on
    defenses.aggregators.krum:krum_scores: n - f - 2 --> n - f - 1
two edits
    fedguard.secagg:: {"a": 1} --> {"a": 2}
    fedguard.secagg.keys:Key.pack:
        if a:
            b = 1
        -->
        b = 1
== tests/test_api.py
wrapped
    fedguard.rng:Rng.child:
        f(a, b)
        --> a
"""
    krum, two, wrapped = rows(text)
    assert krum == (
        "krum with one neighbor too many",
        {"near": "tests/defenses/test_rules.py tests/gate", "because": "it counts; and: so on"},
        (Edit("defenses.aggregators.krum", "krum_scores", "n - f - 2", "n - f - 1"),),
    )
    assert two[2] == (
        Edit("fedguard.secagg", "", '{"a": 1}', '{"a": 2}'),
        Edit("fedguard.secagg.keys", "Key.pack", "if a:\n    b = 1", "b = 1"),
    )
    assert two[2][0].file == "fedguard/secagg/__init__.py" and two[2][1].file == "fedguard/secagg/keys.py"
    assert wrapped == ("wrapped", {"near": "tests/test_api.py"}, (Edit("fedguard.rng", "Rng.child", "f(a, b)", "a"),))
    for bad in ("name\n    what is this", "name\n    a.b:c: d"):
        with pytest.raises(PlantError, match="name: expected"):
            [*rows(bad)]
