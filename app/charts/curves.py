"""What happened over the rounds."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from fedguard.bench.record import Record


def curves(records: Sequence[Record]) -> alt.Chart:
    """Test accuracy over the rounds, one line per seed."""
    points = [
        {"round": round, "accuracy": 100 * accuracy, "seed": str(record["seed"])}
        for record in records
        for round, accuracy in zip(
            record["result"]["curve"]["round"], record["result"]["curve"]["accuracy"], strict=True
        )
    ]
    chart: alt.Chart = (
        alt.Chart(pd.DataFrame(points))
        .mark_line()
        .encode(
            x=alt.X("round:Q", title="round"),
            y=alt.Y("accuracy:Q", title="test accuracy in %", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color("seed:N", title="seed"),
            tooltip=["round", "accuracy", "seed"],
        )
        .properties(height=320, width="container")
    )
    return chart
