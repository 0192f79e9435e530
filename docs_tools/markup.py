"""Plain text as HTML and Markdown. Docstrings are plain text: ``x_i * w`` in them is a formula and no emphasis."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Iterable, Sequence


def inline(text: str) -> str:
    """Plain text as HTML; what stands between backticks is code."""
    parts = re.split(r"``(.+?)``|`(.+?)`", " ".join(text.split()))
    texts, codes = parts[::3], zip(parts[1::3], parts[2::3], strict=True)
    quoted = [f"<code>{html.escape(double or single)}</code>" for double, single in codes] + [""]
    return "".join(html.escape(plain) + code for plain, code in zip(texts, quoted, strict=True))


def paragraphs(text: str) -> str:
    """Plain text as HTML paragraphs; an indented one is a block of code."""
    return "\n\n".join(
        f"<pre><code>{html.escape(inspect.cleandoc(part))}</code></pre>"
        if part.startswith("    ")
        else f"<p>{inline(part)}</p>"
        for part in re.split(r"\n\s*\n", text.strip("\n"))
        if part.strip()
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table; the cells are HTML already. Without headings, the first column is one."""
    head = f"<thead><tr>{''.join(f'<th>{one}</th>' for one in headings)}</tr></thead>" if any(headings) else ""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def code(text: str) -> str:
    """A few words of code as HTML."""
    return f"<code>{html.escape(text)}</code>"


def fenced(text: str, language: str, title: str = "") -> str:
    """A block of code in Markdown."""
    said = f' title="{title}"' if title else ""
    return f"```{language}{said}\n{text.rstrip()}\n```"


def page(title: str, *parts: str) -> str:
    """A page in Markdown."""
    return "\n\n".join([f"# {title}", *(part for part in parts if part)]) + "\n"
