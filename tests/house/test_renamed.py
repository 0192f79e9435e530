"""`docs/renamed.md` has every name of an earlier version, as `fedguard.retired` has them."""

from __future__ import annotations

from docs_tools.renamed import PAGE, page
from fedguard import retired
from tests.root import ROOT


def test_the_page_is_that_of_the_tables():
    assert PAGE.read_text() == page(), "write it again: python -m docs_tools.renamed"
    assert f"renamed: {PAGE.name}" in (ROOT / "mkdocs.yml").read_text().lower()


def test_every_table_is_on_the_page():
    text = page()
    tables = {name: value for name, value in vars(retired).items() if name.startswith("RETIRED_")}
    assert len(tables) > 6
    for name, table in tables.items():
        for row in table.items() if isinstance(table, dict) else table:
            names = (
                [row.old]
                if hasattr(row, "old")
                else row[:-1]
                if isinstance(row[-1], str)
                else [row[0], *map(str, row[1])]
            )
            for one in names:
                last = one.removeprefix("gate.metrics.").rpartition(".")[2]
                assert last.lower() in text, f"{name}: {one}"
