"""Texts that represent numbers or times, in any notation: 3,14 and 12 kg, 120/80 and ~5, 5 May 2024 and 12:30."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

#: What texts tell of that is no category.
TIMES, WRITTEN, AMONG, STORED = (
    "dates or times",
    "numbers written as texts",
    "numbers and texts",
    "numbers stored as texts",
)
#: Texts that only begin with a number are categories, such as grades of a school, if no more than these differ.
FEW_TEXTS = 10
#: Characters of a text that may be a number or a time.
LONGEST = 60

_WHOLE = r"(\d{1,3}([.,'\u2019 \u00a0\u2009\u202f_]\d{2,3})+|\d+)"
_DIGITS = rf"[-+\u2212]?({_WHOLE}([.,]\d+)?|[.,]\d+)([eE][-+]?\d+)?"
_SYMBOL = r"[A-Z]{0,3}[$\u00a2-\u00a5\u0e3f\u20a0-\u20c0\ufdfc\uff04\uffe0\uffe1\uffe5\uffe6]"
_CODE = r"(USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|TRY|RUB|BRL|CAD|AUD|MXN|ZAR|KRW|Rs\.?|kr\.?)"
_CURRENCY = rf"({_SYMBOL}|{_CODE})"
_UNIT = r"(?!(st|nd|rd|th)\b)[^\W\d_]+[\d\u00b2\u00b3]?|[%\uff05\u2030\u00b0][CFK]?|[\u00b5\u03bc]\w*"
_UNITS = rf"({_UNIT})(\s?[/*\u00b7]\s?({_UNIT}))*(\s(Hg|H2O|cent|old|ago))?\.?"
#: A number in another writing than `float` reads: with a decimal comma, thousands, a currency, a unit or a percent sign.
_NUMBER = re.compile(rf"[-+\u2212]?\(?\s*{_CURRENCY}?\s*{_DIGITS}\s*({_CURRENCY}|{_UNITS})?\s*\)?")

#: A number as `float` reads it.
_PLAIN = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
#: Two numbers, such as 120/80 and 5 +- 1; or one with a sign around it: ~5, '5', 5-.
_SECOND = re.compile(
    rf"[~\u2248]?\s*{_DIGITS}\s*(/|x|\u00d7|\u00b1|\+/?-)\s*{_DIGITS}\s*({_UNITS})?"
    rf"|[~\u2248]\s*{_DIGITS}\s*({_UNITS})?|'{_DIGITS}'|{_DIGITS}[-\u2212]"
    rf"|[(\[]\s*{_DIGITS}\s*,\s*{_DIGITS}\s*[)\]]"
    rf"|{_DIGITS}\s?('\s?{_DIGITS}\"?|[hH]\s?\d{{1,2}}|[x\u00d7*]\s?10\^?[-+]?\d+|[dD][-+]\d+)"
)
_BOUND = re.compile(rf"[<>\u2264\u2265]=?\s*{_DIGITS}\s*({_UNITS})?")

#: What tells of numbers if many texts are so: they begin with one, or a decimal one stands by itself.
_MEASURED = re.compile(r"[\W_]*\d.*|(.*[^\w.,-])?\d+[.,]\d.*", re.DOTALL)
#: But neither ordinals nor bands such as 18-25, 5 to 9 years, [0, 10).
_NAMED = re.compile(
    r"\d+(st|nd|rd|th)\b.*"
    r"|[\[(<>]?\s*\d+([.,]\d+)?\s*(-|\u2013|\u2014|to|bis|until)\s*\d+([.,]\d+)?\b.*"
    r"|(\[[^\[\]()]*\)|\([^\[\]()]*\])"
)

_MONTH = (
    r"(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?"
    r"|dec(ember)?)\.?"
)
_WEEKDAY = r"((mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?"
_HOURS = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?(\s?[ap]\.?m\.?)?"
_DAY = "|".join(
    (
        r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\.?",
        r"\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})",
        rf"{_WEEKDAY}\d{{1,2}}(st|nd|rd|th|\.)?[\s/-]*{_MONTH}([\s,/-]+(\d{{4}}|\d{{2}}))?",
        rf"{_WEEKDAY}{_MONTH}[\s/-]+\d{{1,2}}(st|nd|rd|th)?(,?\s+\d{{4}})?",
    )
)
_DATE = re.compile(
    rf"({_DAY})([T ]\s*{_HOURS}.*)?|{_HOURS}"
    rf"|{_MONTH}[\s,/-]+\d{{4}}"
    r"|(19|20)\d{2}[-/.](0?[1-9]|1[0-2])|(0?[1-9]|1[0-2])[-/.](19|20)\d{2}"
    r"|\d{4}[- ]?W\d{1,2}(-?\d)?|(\d{2}|\d{4})[- /]?[QH][1-4]|[QH][1-4]([- /]?\d{4}|[-/ '\u2019]+\d{2})"
    r"|(0?[1-9]|[12]\d|3[01])\.\s?(0?[1-9]|1[0-2])\."
    r"|(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])|(0[1-9]|[12]\d|3[01])-(0[1-9]|1[0-2])"
    r"|(19|20)\d{2}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(T?\d{4,6}Z?)?",
    re.IGNORECASE,
)


def detect_text_kind(texts: Mapping[str, int]) -> tuple[str, str] | None:
    """The kind of texts that are not categories, and an example of it.

    Args:
        texts: different ones, and in how many rows each is.

    Returns:
        `TIMES`, `WRITTEN` (in another writing than Python's), `AMONG` (numbers and texts) or `STORED` (numbers, but as texts).
    """
    if days := _find_most(texts, _DATE.fullmatch):
        return TIMES, days[0]
    bounds = _find_bounds(texts)
    numbers = _find_most(texts, lambda text: _is_number(text) or text in bounds, or_many=True)
    if not numbers and len(texts) > FEW_TEXTS:
        numbers = _find_most(texts, lambda text: _MEASURED.fullmatch(text) and not _NAMED.fullmatch(text))
    if not numbers:
        return None
    for what, some in ((WRITTEN, numbers), (AMONG, texts)):
        if odd := next((text for text in some if not _PLAIN.fullmatch(text)), None):
            return what, odd
    return STORED, numbers[0]


def all_days(different: Sequence[int]) -> bool:
    """Whether whole numbers are days in one piece, such as 20240531."""
    return len(different) > 0 and all(_DATE.fullmatch(str(one)) for one in different)


def _is_number(text: str) -> bool:
    return any(sign.fullmatch(text) for sign in (_NUMBER, _SECOND)) and not _NAMED.fullmatch(text)


def _find_bounds(texts: Iterable[str]) -> list[str]:
    """Texts such as <5 and >50, unless there is one to each side at most: the open ends of bands are categories."""
    found = [text for text in texts if len(text) <= LONGEST and _BOUND.fullmatch(text)]
    sides = [text[0] in "<\u2264" for text in found]
    return found if max(sides.count(True), sides.count(False)) > 1 else []


def _find_most(texts: Mapping[str, int], sign: Callable[[str], object], *, or_many: bool = False) -> list[str]:
    """The matching texts, if they are most of the distinct texts, fill most rows, or are many; else none."""
    matching = [text for text in texts if len(text) <= LONGEST and sign(text)]
    rows = sum(texts[text] for text in matching)
    enough = 2 * len(matching) > len(texts) or 2 * rows > sum(texts.values()) or (or_many and len(matching) > FEW_TEXTS)
    return matching if enough else []
