"""Tuning on proxy data, and its cost on the real data (Bonawitz et al., MLSys 2019, section 7: modeling on proxy data).

The clients' own data may not be available for tuning. Settings are then found on other data, in the hope that they transfer.
If the real data are available after all, as in a benchmark, the transfer can be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from fedguard.bench.tuning.outcome import Tuning
from fedguard.config import Document
from fedguard.config.layout import override
from fedguard.errors import ConfigError
from fedguard.metrics.stats import Estimate, estimate

#: What a proxy cannot stand for: what is tuned, on which attacks and seeds, and how a run is called and judged.
_NOT = ("attack", "defense", "gate", "matrix", "name", "plugins", "replay", "schema", "seeds", "tuning")


def on_proxy(document: Document, proxy: Sequence[str]) -> Document:
    """The suite of a tuning, overridden by these settings (``"task.data=wine"``).

    Raises:
        ConfigError: a setting does not belong to the training, or is swept.
    """
    for setting in proxy:
        key, equals, _ = setting.partition("=")
        if not equals:
            raise ConfigError(f"--proxy {setting}: expected key=value, as in --proxy task.data=wine.")
        if key.partition(".")[0] in _NOT:
            raise ConfigError(
                f"--proxy: expected a setting of what is trained, such as task.data=wine; got {setting}. Leave it out, or "
                "put it over the whole suite with --set."
            )
        swept = [
            one for one in document.data["matrix"] if f"{one}.".startswith(f"{key}.") or f"{key}.".startswith(f"{one}.")
        ]
        if swept:
            raise ConfigError(
                f"--proxy: expected a setting that the suite does not sweep; got {setting} beside matrix.{swept[0]}. Take it "
                "out of the matrix."
            )
    return override(document, proxy)


def regret(on_proxy: Tuning, on_real: Tuning) -> dict[str, Estimate]:
    """By configured defense, what tuning on real data gains over tuning on the proxy, in accuracy on the real data.

    $r_s = a_s(c_s) - a_s(p)$ for each seed s, with p the setting that was chosen on the proxy and $c_s$ the one that does
    best on the real data with the other seeds, so that neither choice has seen what it is judged by; $a_s$ is the worst
    accuracy over the tuning's attacks. The mean comes with Student's 95 % interval over seeds. It may be negative.

    Defenses with fewer than two scored settings on the real data are left out.

    Args:
        on_proxy, on_real: tunings of the same suite with the same budget, attacks and seeds, two seeds or more.
    """
    found: dict[str, Estimate] = {}
    for proxy, real in zip(on_proxy.defenses, on_real.defenses, strict=True):
        scores = {tried.setting: tried.by_seed for tried in real.eligible}
        if len(scores) < 2 or proxy.chosen not in scores or len(on_real.seeds) < 2:
            continue
        lost = []
        for seed, reached in enumerate(scores[proxy.chosen]):
            others = {setting: fsum(values) - values[seed] for setting, values in scores.items()}
            best = max(others, key=lambda setting: others[setting])
            lost.append(scores[best][seed] - reached)
        found[real.configured] = estimate(lost)
    return found
