"""The formulae of docstrings: marked as such, read as they are meant, and plain in a terminal."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from fedguard import cli
from fedguard.bench.docstrings import plain, prose
from fedguard.bench.explain.settings import settings
from fedguard.registry import load_registry

pytest.importorskip("latex2mathml")

from docs_tools.formulae import mathml, tex

ALGORITHMS = [cls for kind, cls in load_registry().classes() if load_registry().origin(kind, cls.name) == "built in"]

#: What no sentence holds, but a formula does.
TELLING = re.compile(
    r"[\w)]\^[\w({-]|<-|<=|\b(?:[a-zA-Z]|mu|tau|rho|sigma|sum|max|min)_(?:[a-z]\b|[({])|\bsqrt\(|\|\w+_\w+\|"
)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("z = Phi^-1((n - f - s) / (n - f))", r"z = \Phi^{-1}\left( \frac{n - f - s}{n - f} \right)"),
        (
            "max_i |b - x_i| <= max_ij |x_i - x_j|",
            r"\max_{i} \left|b - x_{i}\right| \le \max_{ij} \left|x_{i} - x_{j}\right|",
        ),
        ("|g - |g| k/|k||", r"\left|g - \left|g\right| k / \left|k\right|\right|"),
        ("<R, mu> / |mu|^2", r"\frac{\left\langle R , \mu\right\rangle }{\left|\mu\right|^{2}}"),
        ("sum_{i=f+1}^{n-f} x_{(i)k}", r"\sum_{i = f + 1}^{n - f} x_{(i) k}"),
        ("x_(t-1)", "x_{t - 1}"),
        ("boost * (w_backdoored - server_lr)", r"\text{boost} \cdot (w_{\text{backdoored}} - \text{server\_lr})"),
        ("[X | 1] in N(0, eps)", r"[X \mid 1] \in \mathcal{N}(0 , \varepsilon)"),
        ("tv l2", r"\text{tv} \  \text{l2}"),
        ('a "near" b', r"a \  \text{near} \  b"),
    ],
)
def test_a_formula_is_read_as_it_is_meant(formula, expected):
    assert tex(formula) == expected
    assert mathml(expected).startswith("<math") and mathml(expected).endswith("</math>")


@pytest.mark.parametrize("formula", ["(a + b", "a + b)", "|a", "x_{i", "<a, b"])
def test_what_is_not_closed_is_refused(formula):
    with pytest.raises(ValueError, match="the formula"):
        tex(formula)


@pytest.mark.parametrize("cls", ALGORITHMS, ids=lambda cls: f"{cls.kind}-{cls.name}")
def test_formulae_stand_between_their_signs(cls):
    said = [prose(cls.__doc__ or "").partition("\n")[2], *(one.meaning for one in settings(cls))]
    for text in said:
        assert text.count("$") % 2 == 0, text
        words = re.sub(r"``.*?``|`.*?`|\$.*?\$", "", text, flags=re.DOTALL)
        assert not TELLING.search(words), words[TELLING.search(words).start() - 20 :][:60]
    assert "$" not in cls.summary(), "a first line stands in tables and lists as it is"


def test_a_terminal_gets_no_signs():
    shown = CliRunner().invoke(cli.app, ["explain", "min_max"]).stdout
    assert "b = mu + gamma * p with the largest gamma such that max_i |b - x_i| <=" in " ".join(shown.split())
    for name in ("min_max", "trimmed_mean", "sum_leakage"):
        assert "$" not in CliRunner().invoke(cli.app, ["explain", name]).stdout
    assert "$" not in CliRunner().invoke(cli.app, ["list", "--json"]).stdout
    assert plain("``x`` is $x^2$") == "``x`` is x^2"
