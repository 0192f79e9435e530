"""Formulae as MathML, which browsers typeset without a script.

Documents hold TeX between dollar signs, which GitHub shows as well. Docstrings hold what reads well in a terminal between the
same signs, ``$z = Phi^-1((n - f - s) / (n - f))$``: Greek letters by their names, ``x_i``, ``x_(i + 1)``, ``x_{(i)}``, ``x^2``,
``sqrt(x)``, ``floor(x)``, the length ``|x|``, the inner product ``<x, y>``, ``"words"``. A ``/`` between spaces is a fraction.
"""

from __future__ import annotations

import html
import re
from xml.etree.ElementTree import fromstring, register_namespace, tostring

from latex2mathml.converter import convert

#: Names with a meaning other than their letters.
_NAMES = {
    **{name: rf"\{name}" for name in ("alpha", "beta", "gamma", "delta", "eta", "theta", "kappa", "lambda", "mu", "nu", "pi")},
    **{name: rf"\{name}" for name in ("rho", "sigma", "tau", "omega", "Delta", "Phi", "Sigma")},
    **{name: rf"\{name}" for name in ("sum", "max", "min", "exp", "log", "ln", "cos", "sin", "tanh")},
    "epsilon": r"\varepsilon", "eps": r"\varepsilon", "phi": r"\varphi", "grad": r"\nabla", "in": r"\in", "pbar": r"\bar{p}",
    **{name: rf"\operatorname{{{name}}}" for name in ("argmax", "argmin", "mod")},
}  # fmt: skip
_SIGNS = {
    "<=": r"\le", ">=": r"\ge", "!=": r"\ne", "<-": r"\leftarrow", "->": r"\to", "...": r"\dots", "+-": r"\pm", "~": r"\sim",
    "*": r"\cdot", "%": r"\%", "{": r"\{", "}": r"\}",
}  # fmt: skip
#: Opening signs, with what closes them and how both are written.
_GROUPS = {
    "(": (")]", "(", ")"), "[": ("])", "[", "]"), "{": ("}", r"\{", r"\}"),
    "|": ("|", r"\left|", r"\right|"), "<": (">", r"\left\langle ", r"\right\rangle "),
}  # fmt: skip
_OPERATORS = {*_SIGNS.values(), *"+-=<>,;:/", r"\in", r"\mid"}
_AROUND = {"floor": (r"\lfloor ", r"\rfloor "), "ceil": (r"\lceil ", r"\rceil "), "sqrt": (r"\sqrt{", "}")}

_SPACE = "{http://www.w3.org/1998/Math/MathML}"
register_namespace("", _SPACE[1:-1])
#: Signs that the converter would typeset as variables.
_TAKEN_FOR_NAMES = {*"±~⌊⌋⌈⌉"}

_TOKENS = re.compile(
    r'(?P<space>\s*)(?P<token>"[^"]*"|\d[\d,]*\d(?:\.\d+)?|\d(?:\.\d+)?|[A-Za-z]+\d*|<=|>=|!=|<-|->|\.\.\.|\+-|\S)',
    re.DOTALL,
)


def mathml(tex: str, display: bool = False) -> str:
    """TeX as MathML, without anything else around it."""
    root = fromstring(convert(tex, display="block" if display else "inline"))
    for one in root.iter(f"{_SPACE}mi"):
        if one.text in _TAKEN_FOR_NAMES:
            one.tag = f"{_SPACE}mo"
    for row in root.iter(f"{_SPACE}mrow"):
        if len(row) and row[0].get("fence") and row.find(f".//{_SPACE}mfrac") is None:
            row[0].attrib["stretchy"] = row[-1].attrib["stretchy"] = "false"  # else what is above them stands too high
    return tostring(root, encoding="unicode")


def set_in(page: str, docstrings: bool) -> str:
    """A page in HTML with MathML in place of the formulae that `pymdownx.arithmatex` found.

    Args:
        docstrings: whether the formulae are as docstrings have them, and not TeX.
    """

    def written(found: re.Match[str]) -> str:
        formula = html.unescape(found["inline"] or found["block"])
        return mathml(tex(formula) if docstrings else formula, display=bool(found["block"]))

    return re.sub(
        r'<span class="arithmatex">\\\((?P<inline>.*?)\\\)</span>|<div class="arithmatex">\\\[(?P<block>.*?)\\\]</div>',
        written,
        page,
        flags=re.DOTALL,
    )


def tex(plain: str) -> str:
    """A formula of a docstring as TeX.

    Raises:
        ValueError: something is opened and not closed.
    """
    return _Reader(plain).whole()


class _Reader:
    """Reads a formula once from left to right; ``at`` is the next token."""

    def __init__(self, plain: str) -> None:
        self.plain, self.at = plain, 0
        found = list(_TOKENS.finditer(plain.strip()))
        self.tokens = [one["token"] for one in found] + [""]
        self.spaced = [bool(one["space"]) for one in found] + [True]

    def whole(self) -> str:
        return self._row("")

    def _row(self, closing: str) -> str:
        """All tokens up to one of the closing signs, or to the end."""
        written: list[str] = []
        while (token := self.tokens[self.at]) and not self._closes(token, closing, bool(written)):
            if token == "/" and self.spaced[self.at] and self.spaced[self.at + 1] and written:
                self.at += 1
                written[-1] = rf"\frac{{{_bare(written[-1])}}}{{{_bare(self._atom())}}}"
            else:
                spaced = self.spaced[self.at]
                one = self._atom()
                words = spaced and written and not {one, written[-1]} & _OPERATORS and r"\text{" in one + written[-1]
                written += [r"\ "] * bool(words) + [one]
        return " ".join(written)

    def _closes(self, token: str, closing: str, begun: bool) -> bool:
        if token not in closing:
            return False
        after = self.tokens[self.at - 1]
        return token != "|" or (begun and not self.spaced[self.at] and after not in tuple("+-*/=~,(["))

    def _atom(self) -> str:
        """One operand, with its argument, superscript and subscript."""
        written = self._bare_atom()
        while not self.spaced[self.at] and (sign := self.tokens[self.at]) in ("_", "^", "'", "(", "["):
            if sign in "([" and not re.search(r"[A-Za-z}']$", written):
                break
            self.at += 1
            written += {"_": self._script, "^": self._script, "'": str, "(": self._group, "[": self._group}[sign](sign)
        return written

    def _bare_atom(self) -> str:
        token = self.tokens[self.at]
        opens = token in _GROUPS and not (token in "|<" and self.spaced[self.at + 1])
        self.at += 1
        if token in (")", "]", "}"):
            raise ValueError(f"the formula {self.plain!r}: nothing opens what {token!r} closes")
        if opens:
            return self._group(token)
        if token[0] == '"':
            return rf"\text{{{token[1:-1]}}}"
        if token in _AROUND and self.tokens[self.at] == "(":
            self.at += 1
            first, last = _AROUND[token]
            return f"{first}{self._until(')')}{last}"
        if token[0].isalpha():
            return self._name(token)
        return r"\mid" if token == "|" else _SIGNS.get(token, token)

    def _name(self, name: str) -> str:
        if name == "N" and self.tokens[self.at] == "(":
            return r"\mathcal{N}"
        if name in _NAMES:
            return _NAMES[name]
        if len(name) == 1 or re.fullmatch(r"d[A-Z]|d[bxz]|th", name):
            return name
        while self.tokens[self.at] == "_" and len(self.tokens[self.at + 1]) > 1 and self.tokens[self.at + 1].isalpha():
            self.at += 1
            name += rf"\_{self._next()}"
        return rf"\text{{{name}}}"

    def _script(self, sign: str) -> str:
        return f"{sign}{{{self._within_script(sign)}}}"

    def _within_script(self, sign: str) -> str:
        token = self._next()
        if token in "({":
            return self._until(_GROUPS[token][0])
        if token == "-":
            return f"-{self._within_script(sign)}"
        if token in "|[":
            return self._group(token)
        if token[0].isdigit() and self.tokens[self.at].isalpha() and not self.spaced[self.at] and sign == "_":
            return f"{token} {self._next()}"
        if token == "in":
            return r"\text{in}"
        return token if token.isalpha() and len(token) == 2 and token not in _NAMES else self._name(token)

    def _group(self, opening: str) -> str:
        closing, first, last = _GROUPS[opening]
        within = self._row(closing)
        if not (closed := self._next()):
            raise ValueError(f"the formula {self.plain!r}: {opening!r} is not closed")
        tall = r"\frac" in within and opening in "(["
        return (
            rf"\left{first} {within} \right{closed}"
            if tall
            else f"{first}{within}{last if opening in '|<{' else closed}"
        )

    def _until(self, closing: str) -> str:
        within = self._row(closing)
        if not self._next():
            raise ValueError(f"the formula {self.plain!r}: {closing[0]!r} is missing")
        return within

    def _next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]


def _bare(written: str) -> str:
    """Without the parentheses that a fraction's bar replaces."""
    return written[1:-1] if re.fullmatch(r"\([^()]*(?:\([^()]*\)[^()]*)*\)", written) else written
