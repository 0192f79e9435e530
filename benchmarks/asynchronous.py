"""Servers at which nobody waits, beside the synchronous one: updates in a second of CPU time, one thread, in turn.

100 clients train 10 or 50 steps of 32 examples of digits at a time. The trainings cost the same in all; each aggregate costs
what it does, and an asynchronous server makes 100 of them where the synchronous one makes one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from measure import alternate, arguments, keep

from fedguard.api import lay_out
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench

#: Who waits for whom.
SERVERS = ("server", "parameter_server(consistency='eventual')", "fedasync", "fedbuff(buffer=10)")

#: Models, with the steps of a training.
TRAINED = (("softmax", 10), ("mlp", 10), ("mlp", 50))


def course(architecture: str, model: str, steps: int, rounds: int, bench: Workbench) -> Callable[[], int]:
    """A training, from its first round to its last; it returns how many updates reached the server."""
    suite: dict[str, Any] = {
        "name": "asynchronous",
        "task": {"data": "digits", "model": model, "partition": "iid"},
        "clients": {"total": 100},
        "training": {"rounds": rounds, "local_steps": steps, "batch_size": 32, "lr": 0.05},
        "network": {"compute": {"seconds": 0.01, "spread": 0.3, "jitter": 0.3}, "link": {"latency": 0.1}},
        "evaluation": {"every": rounds},
        "architecture": architecture,
        "seeds": 1,
        "matrix": {"attack": ["none"], "defense": ["mean"]},
    }
    cell = lay_out(suite)[1].cells[0]
    task = bench.task(cell, 0)
    return lambda: sum(len(report.clients) for report in cell.architecture.run(set_up(cell, 0, task)))


def main() -> None:
    """Print a line for each server and model."""
    options = arguments(__doc__ or "")
    rounds, repeats = (1, 1) if options.smoke else (6, 4)
    bench, figures = Workbench(), []
    for model, steps in TRAINED[: 1 if options.smoke else None]:
        jobs = {server: course(server, model, steps, rounds, bench) for server in SERVERS}
        updates = dict(zip(jobs, (job() for job in jobs.values()), strict=True))
        seconds = alternate(jobs, repeats)
        rates = {server: updates[server] / seconds[server] for server in jobs}
        for server, rate, base in zip(rates, rates.values(), repeat(rates["server"])):
            found = {"architecture": server, "model": model, "steps": steps}
            figures.append({**found, "updates a second": rate, "ratio": rate / base})
            print(
                f"{model}, {steps} steps  {server}: {rate:.0f} updates a second, {rate / base:.2f} of the synchronous server's"
            )
    keep(options.json, figures)


if __name__ == "__main__":
    main()
