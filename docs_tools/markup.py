"""Plain text as HTML and Markdown. Docstrings are plain text: ``x_i * w`` in them is a formula and no emphasis."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Iterable, Sequence

from docs_tools.formulae import mathml, tex


def inline(text: str) -> str:
    """Plain text as HTML; text between backticks is code, text between dollar signs a formula."""
    written = {"``": code, "`": code, "$": lambda formula: mathml(tex(formula))}
    parts = re.split(r"(``|`|\$)(.+?)\1", " ".join(text.split()))
    texts, signs, within = parts[::3], [*parts[1::3], ""], [*parts[2::3], ""]
    return "".join(
        html.escape(plain) + written.get(sign, html.escape)(inner)
        for plain, sign, inner in zip(texts, signs, within, strict=True)
    )


def paragraphs(text: str) -> str:
    """Plain text as HTML paragraphs. An indented one keeps its lines; without a formula it is a code block."""
    return "\n\n".join(
        f"<p>{inline(part)}</p>"
        if not part.startswith("    ")
        else f'<p class="formulae">{"<br>".join(map(inline, part.splitlines()))}</p>'
        if "$" in part
        else f"<pre><code>{html.escape(inspect.cleandoc(part))}</code></pre>"
        for part in re.split(r"\n\s*\n", text.strip("\n"))
        if part.strip()
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table; the cells are HTML already. Without column headings, the first column holds row headings."""
    head = f"<thead><tr>{''.join(f'<th>{one}</th>' for one in headings)}</tr></thead>" if any(headings) else ""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def code(text: str) -> str:
    """Inline code as HTML."""
    return f"<code>{html.escape(text)}</code>"


def fenced(text: str, language: str, title: str = "") -> str:
    """A block of code in Markdown."""
    said = f' title="{title}"' if title else ""
    return f"```{language}{said}\n{text.rstrip()}\n```"


def page(title: str, *parts: str) -> str:
    """A page in Markdown."""
    return "\n\n".join([f"# {title}", *(part for part in parts if part)]) + "\n"
