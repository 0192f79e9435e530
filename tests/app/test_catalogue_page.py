"""The catalogue: all of it, found by what it does and needs, and shown as the algorithms tell of themselves."""

from __future__ import annotations

import re
import textwrap

import pytest
from streamlit.testing.v1 import AppTest

from fedguard.bench.docstrings import prose
from fedguard.registry import load_registry

SCRIPT = """
    from pathlib import Path
    import streamlit as st
    from fedguard.app.here import PageContext
    from fedguard.app.views import catalogue

    class Alone(PageContext):
        def link(self, page, label, **query):
            st.caption(f"{page} {sorted(query.items())}")

    catalogue.show(Alone(Path("."), None, {}))
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("catalogue") / "page.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return str(path)


def page(script, **query: str | list[str]) -> AppTest:
    test = AppTest.from_file(script, default_timeout=120)
    for key, value in query.items():
        test.query_params[key] = value
    test.run()
    assert not test.exception
    return test


def names(test: AppTest) -> list[str]:
    return list(test.dataframe[0].value["name"])


def texts(test: AppTest) -> str:
    drawn = [re.sub(r"<[^>]+>", " ", node.proto.body) for node in test.get("html")]
    return "\n".join([*(element.value for element in [*test.text, *test.caption, *test.code]), *drawn])


def test_everything_in_the_registry_is_there(script):
    kinds = [
        "attack",
        "inference",
        "protocol",
        "defense",
        "trigger",
        "data",
        "partition",
        "model",
        "algorithm",
        "masking",
        "noise",
        "availability",
        "evasion",
        "statistics",
    ]
    assert sorted(names(page(script))) == sorted(cls.name for _, cls in load_registry().classes(kinds))


def test_the_heading_says_how_many_fit(script):
    whole, some = texts(page(script)), texts(page(script, kind="trigger"))
    count = len(names(page(script)))
    assert f"{count} attacks, defenses and other parts of a suite, each with its formula" in whole
    fit = len(names(page(script, kind="trigger")))
    assert (
        f"{fit} of {count} attacks, defenses and other parts of a suite fit" in some
        and f"{fit} of the kind trigger" in some
    )
    assert "Take a filter away." in texts(page(script, search="no such thing"))


def test_search_looks_at_names_and_at_what_they_do(script):
    found = names(page(script, search="geometric"))
    assert "geometric_median" in found
    for name in found:
        (cls,) = [cls for _, cls in load_registry().classes() if cls.name == name]
        assert "geometric" in f"{cls.name} {cls.summary()}".lower()


def test_what_full_masking_refuses_is_what_needs_single_updates_or_sums_of_groups(script):
    refused, runs = names(page(script, masking="refused")), names(page(script, masking="runs"))
    assert {"krum", "nnm", "median"} <= set(refused)
    assert {"mean", "client_clipping", "label_flip"} <= set(runs)
    assert not set(refused) & set(runs)


def test_filters_add_up(script):
    test = page(script, kind="inference", goal="membership")
    assert set(names(test)) == {
        cls.name for _, cls in load_registry().classes(["inference"]) if cls.goal == "membership"
    }
    with_sums = names(page(script, kind="inference", sees=["sum", "model"]))
    assert "spear" in with_sums
    assert "fed_mia" not in with_sums
    # who sees each update sees their sum
    assert set(with_sums) < set(names(page(script, kind="inference", sees=["each_update", "model"])))


def test_the_address_opens_one_in_full_with_its_formula_source_and_picture(script):
    test = page(script, name="krum")
    assert [heading.value for heading in test.header] == ["krum (defense)"]
    shown = texts(test)
    assert "R(x) = x_i with the smallest score" in shown
    assert "Blanchard et al." in shown
    assert "krum in a toy first round of 16 honest and 4 malicious updates:" in shown
    assert "lab [('rule', 'krum')]" in shown


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("nnm", "lab [('mixings', 'nnm')]"),
        ("client_clipping", "lab [('transforms', 'client_clipping')]"),
        ("spear", "lab [('attack', 'spear')]"),
        ("dirichlet", "lab [('partition', 'dirichlet')]"),
        ("graph_grinding", "fedguard secagg attack graph_grinding"),
    ],
)
def test_each_kind_has_its_own_way_to_be_tried(script, name, link):
    assert link in texts(page(script, name=name))


def test_parameters_have_defaults_and_meanings(script):
    table = page(script, name="dirichlet").dataframe[1].value
    assert table.to_dict("records")[0] == {
        "parameter": "alpha",
        "type": "float > 0",
        "default": "0.5",
        "what it means": "concentration; 100 is almost IID, 1 is mild, 0.1 is severe.",
    }


def test_a_name_of_two_kinds_shows_both(script):
    shown = [heading.value for heading in page(script, name="dropout").header]
    assert shown == ["dropout (attack on the training)", "dropout (attack on the protocol)"]


def test_an_attack_on_data_has_no_picture_and_is_shown_all_the_same(script):
    assert "toy first round" not in texts(page(script, name="label_flip"))


def test_prose_ends_where_the_arguments_begin():
    for _, cls in load_registry().classes():
        told = prose(cls.__doc__ or "")
        assert told.startswith(cls.summary())
        assert not [line for line in told.splitlines() if line in ("Args:", "Attributes:", "Raises:")]
