"""What a machine counts of the house: goals that are reached stay so, and the other counts may only become better.

A count that is better than allowed by more than a tenth asks for a new allowance: ``python -m tests.house_counts`` prints them all.
"""

from __future__ import annotations

import ast

import pytest

from tests.house_counts import (
    File,
    class_names,
    comment_rate,
    contract_exports,
    contract_members,
    files,
    files_in,
    function_lengths,
    import_cycles,
    is_participle,
    names_with_two_meanings,
    participles,
    public,
)

#: What may only fall: how it is counted, and how many there may be.
AT_MOST = {
    "public class names with two or more meanings": (lambda: len(public(names_with_two_meanings())), 0),
    "private ones beside them": (lambda: len(names_with_two_meanings()) - len(public(names_with_two_meanings())), 0),
    "functions named by a participle": (lambda: len(participles(files())), 50),
    "functions over 40 lines": (lambda: sum(length > 40 for length in function_lengths()), 48),
    "lines of the longest function": (lambda: function_lengths()[-1], 107),
    "classes of contracts": (lambda: sum(1 for file in files_in("contracts") for _ in file.classes), 114),
    "members of contracts": (contract_members, 879),
    "exports of contracts": (contract_exports, 132),
    "modules in import cycles under TYPE_CHECKING": (lambda: sum(map(len, import_cycles(typing=True))), 0),
}

#: What may only rise: lines of comment for each 100 lines of code.
COMMENTS = {"engines": 1.6, "accountants": 2.0, "protocol": 1.4, "event code": 1.1, "rules": 0.4}


@pytest.mark.parametrize("what", AT_MOST)
def test_what_may_only_fall(what):
    count, allowed = AT_MOST[what]
    found = count()
    assert found <= allowed, f"{what}: {found}, expected at most {allowed}; python -m tests.house_counts --list"
    assert found >= 0.9 * allowed, f"{what}: {found} of {allowed} allowed; lower the allowance"


@pytest.mark.parametrize("room", COMMENTS)
def test_comments_become_no_fewer(room):
    rate = comment_rate(files_in(room))
    assert rate >= COMMENTS[room], (
        f"{room}: {rate:.2f} lines of comment in 100 lines of code, expected {COMMENTS[room]}"
    )


def test_nothing_is_imported_in_a_circle():
    assert import_cycles(typing=False) == []


def test_most_files_and_functions_are_short():
    sizes = sorted(sum(file.lines.values()) for file in files())
    lengths = function_lengths()
    assert sizes[9 * len(sizes) // 10] <= 250, "90 % of the files: expected at most 250 lines"
    assert lengths[9 * len(lengths) // 10] <= 20, "90 % of the functions: expected at most 20 lines"
    assert sum(length > 40 for length in lengths) <= 0.01 * len(lengths), "expected at most 1 % over 40 lines"


def test_what_is_counted_is_right():
    """On a file that is small enough to count by hand."""
    text = (
        '"""What it is."""\n\n# why\nimport a.b  # beside code\nif TYPE_CHECKING:\n    from c import d\n\n\n'
        'def told(x):\n    """Says.\n\n    More.\n    """\n    return """\n# no comment\n"""\n'
    )
    file = File("fedguard/x/__init__.py", text, ast.parse(text))
    assert file.lines == {"docstring": 5, "blank": 3, "comment": 1, "code": 7}
    assert file.module == "fedguard.x"
    assert set(file.imports(typing=False)) == {"a.b"}
    assert set(file.imports(typing=True)) == {"a.b", "c.d"}
    assert [one.name for one in file.functions] == ["told"] and not list(file.classes)
    assert [
        name for name in ("told_among", "_released", "seed", "need", "speed_up", "aggregate") if is_participle(name)
    ] == [
        "told_among",
        "_released",
    ]
    assert len(class_names()) > 500
