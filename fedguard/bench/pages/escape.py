"""Text from runs, made harmless: names of attacks, reasons, paths, and anything else that somebody may have chosen."""

from __future__ import annotations

import re

from fedguard.errors import escape_control

#: Characters that Markdown, LaTeX in Markdown, or a directive of Streamlit may interpret; and marks of a list at the start
_MARKDOWN = re.compile(r"([\\`*_\[\]|~#!$]|:(?=\S)|^[-+=])")


def line(text: str) -> str:
    """One line without control characters, for a terminal or an element of HTML."""
    return escape_control(" ".join(text.split("\n")))


def markdown(text: str) -> str:
    """One line of Markdown, cells of tables included, that is shown as the text is."""
    text = " ".join(line(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _MARKDOWN.sub(r"\\\1", text).replace("@", "&#64;")  # no mail to a team that bears the name
    return re.sub(r"^(\d+)([.)] )", r"\1\\\2", text)


def code(text: str) -> str:
    """A span of code in Markdown, whatever backticks and pipes it holds."""
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{ticks}{space}{line(text)}{space}{ticks}".replace("|", r"\|")
