"""Cost of an epsilon, remaining leakage, and the audit of the claim."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import streamlit as st

from fedguard.app.charts.privacy import audit_names, bounds, frontier, roc
from fedguard.app.here import PageContext, empty, plain
from fedguard.bench.audits.cells import CellAudit
from fedguard.bench.audits.suites import load_audit
from fedguard.bench.results.disclosure import (
    MembershipResult,
    PrivacyClaim,
    ReconstructionResult,
    list_membership_targets,
    picture,
    pool_target_scores,
    promises,
    rebuilt,
)
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.bench.results.trilemma import Trilemma, points
from fedguard.errors import StoreError
from fedguard.metrics.figures import FIGURES, Metric, default_figures
from fedguard.metrics.stats import Estimate

#: Reconstructions on one page of the gallery
SHOWN = 12


def show(here: PageContext) -> None:
    """One part at a time, named in the address."""
    run = here.run()
    part = st.segmented_control(
        "Part", list(PARTS), default=next(iter(PARTS)), required=True, key="privacy", bind="query-params"
    )
    PARTS[part](run)


def _proven(run: Run) -> None:
    """Every epsilon of the run in words."""
    st.caption("An epsilon is an upper bound on what one record or one client changes. Smaller hides more.")
    alike: dict[tuple[str, str], list[PrivacyClaim]] = {}
    for promise in promises(run):
        alike.setdefault((promise.figure, promise.words), []).append(promise)
    for found in alike.values():
        with st.container(border=True):
            _promise(found[0], [one.setting or "every cell" for one in found])


def _promise(promise: PrivacyClaim, settings: Sequence[str]) -> None:
    left, right = st.columns([1, 3])
    left.metric("epsilon", promise.figure)
    left.text(f"hides one {promise.unit}" if promise.epsilon else "hides nothing for certain")
    with right:
        plain("\n".join(settings))
        st.text(promise.words)
        st.text(f"{promise.trials} trials, under: {', '.join(promise.attacks)}")
        noise = [(key, promise.facts[key]) for key in _NOISE if promise.facts.get(key) is not None]
        if noise:
            st.text(", ".join(f"{_NOISE[key]} {_short(value)}" for key, value in noise))
        if assumptions := promise.facts.get("assumptions"):
            with st.expander("What this rests on"):
                for line in assumptions:
                    st.text(f"- {line}")


#: Properties of the noise that a reader may want to compare
_NOISE = {
    "mechanism": "mechanism",
    "noise_multiplier": "noise multiplier",
    "clip": "clip",
    "sample_rate": "sample rate",
    "divided_by": "the noisy sum is divided by",
    "rounds": "rounds",
    "contributors": "contributors",
}


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _costs(run: Run) -> None:
    """The epsilon-utility frontier, and the leakage below it."""
    found = Trilemma(run.name, points(run.rows(), run.swept))
    epsilons = {point.epsilon for point in found.points}
    if len(epsilons) < 2:
        empty(
            "This run has one epsilon, or none: there is nothing to draw accuracy and leakage over.",
            "fedguard run examples/privacy_cost.yaml",
        )
        return
    units = {one.setting: str(one.unit) for one in promises(run) if one.unit}
    st.altair_chart(
        frontier(found, units),
        width="content",
        alt="Accuracy under the worst attack and each metric of leakage over epsilon, one color for each defense.",
    )
    if len(set(units.values())) > 1:
        st.caption("Epsilons of a record and of a client are different promises: compare points of one shape only.")
    if not any(point.leakage for point in found.points):
        empty("No attack of this run looks at the clients' privacy.", "fedguard list inference")
    st.dataframe([_point(row) for row in found.rows()], hide_index=True)
    if found.note:
        st.caption(found.note)


def _point(row: Mapping[str, Any]) -> dict[str, Any]:
    """A point for a reader: each metric with its unit, interval and attack."""
    said = {
        FIGURES[key].title: _format_estimate(key, Estimate(value["mean"], value["low"], value["high"], 0))
        + f" ({value['attack']})"
        for key, value in row.items()
        if key in ("final_accuracy", *default_figures("trilemma"))
    }
    epsilon = "no guarantee" if row["epsilon"] is None else f"{row['epsilon']:.4g}"
    return {"defense": row["defense"], "epsilon": epsilon, **said, "setting": row["setting"]}


def _format_estimate(figure: str, found: Estimate) -> str:
    known = FIGURES[figure]
    few = "" if known.interval(found) else " (too few seeds for an interval)"
    return known.format_with_unit(found) + few


def _members(run: Run) -> None:
    """ROC curves of membership attacks, and true positive rates at few false positives."""
    found = [one for one in list_membership_targets(run) if one.score["roc"]]
    if not found:
        empty("No attack of this run asks who was a member.", "fedguard run examples/privacy_cost.yaml")
        return
    st.altair_chart(
        roc(found),
        width="content",
        alt="True over false positive rates of membership attacks on logarithmic axes, beside the diagonal of chance.",
    )
    st.caption(
        "Faint: each target. Strong: the mean over seeds of their mean, with its 95 % interval. Dashed: chance. "
        "Left of the coarsest resolution (one of the non-members) no rate can be told, and a rate of 0 has no place."
    )
    st.dataframe(_over_seeds(run), hide_index=True)
    with st.expander("Each target, with counts and Clopper-Pearson intervals"):
        st.dataframe([_target(one) for one in found], hide_index=True)


def _over_seeds(run: Run) -> list[dict[str, Any]]:
    alike: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in run.rows():
        if row["goal"] == "membership":
            alike.setdefault((setting(row, run.swept), row["attack"], row["defense"]), []).append(row)
    targets: dict[tuple[str, str, str], list[MembershipResult]] = {}
    for one in list_membership_targets(run):
        targets.setdefault((one.place.setting, one.place.attack, one.place.defense), []).append(one)
    return [
        {
            "attack": attack,
            "defense": defense,
            **{FIGURES[key].title: _mean(rows, key) for key in ("membership_auc", "membership_tpr")},
            "at 0.1 %, targets and seeds pooled": _pool_rates(targets.get((where, attack, defense), [])),
            "setting": where,
        }
        for (where, attack, defense), rows in alike.items()
    ]


def _pool_rates(targets: Sequence[MembershipResult]) -> str:
    """The rate at .1 % over all candidates together."""
    together = pool_target_scores(targets)
    return "unreportable" if together is None else _rate(together["tpr_at_01_percent"], 100, " %")


def _mean(rows: Sequence[Mapping[str, Any]], figure: str) -> str:
    bad = next((row["status"] for row in rows if row["status"] != "ok"), None)
    if bad:
        return str(bad)
    values = [row[figure] for row in rows]
    if None in values:
        return "unreportable"
    return _format_estimate(figure, FIGURES[figure].estimate(values))


def _target(one: MembershipResult) -> dict[str, Any]:
    place, score = one.place, one.score
    return {
        "attack": place.attack,
        "defense": place.defense,
        "seed": place.seed,
        "target": one.target,
        "members": score["members"],
        "non-members": score["non_members"],
        "AUC": _rate(score["auc"], 1, ""),
        "found at 1 % false alarms": _rate(score["tpr_at_1_percent"], 100, " %"),
        "found at 0.1 % false alarms": _rate(score["tpr_at_01_percent"], 100, " %"),
        "setting": place.setting,
    }


def _rate(rate: Mapping[str, Any], scale: float, unit: str) -> str:
    if rate["value"] is None:
        return f"unreportable: {rate['why']}"
    low, high = rate["interval"]
    return f"{scale * rate['value']:.3g}{unit} [{scale * low:.3g}, {scale * high:.3g}]"


def _show_audits(run: Run) -> None:
    """The audits' lower bounds, beside the accountant's claims."""
    stored = load_audit(run.folder)
    if stored is None or not stored.audits:
        config, store = run.folder.path / "config.resolved.yaml", run.folder.path.parent
        command = ["fedguard", "audit", str(config), "--store", str(store), "--name", run.name]
        empty("The claims of this run have not been audited.", shlex.join(command))
        return
    when = datetime.fromtimestamp(stored.time).strftime("%Y-%m-%d %H:%M")
    st.text(f"Audited {when} by {stored.method}, commit {stored.commit or 'unknown'}, code {stored.code}.")
    for doubt in stored.doubts(run):
        st.warning(doubt)
    st.altair_chart(
        bounds(stored.audits),
        alt="For each audit the lower bound of the canaries as a bar and the accountant's epsilon as a diamond.",
    )
    st.caption(
        "Bar: what canaries prove at least. Diamond: what the accountant claims at most, for the rounds that were audited, "
        "which are fewer than the run's. A bar beyond its diamond refutes the claim. No audit proves privacy."
    )
    for name, one in zip(audit_names(stored.audits), stored.audits, strict=True):
        with st.container(border=True):
            _audit(name, one)


def _audit(name: str, one: CellAudit) -> None:
    audited, bound = one.audit, one.audit.bound
    plain(f"{name}: {audited.verdict}")
    st.text(audited.words)
    sure = "an estimate" if bound.confidence is None else f"{100 * bound.confidence:g} % confidence"
    claimed = "nothing" if audited.claimed is None else f"{audited.claimed:.4g}"
    st.text(f"Bound {bound.epsilon:.4g} ({sure}, {audited.canaries} canaries) beside claim {claimed}.")
    if bound.assumes:
        st.text(f"The bound assumes: {bound.assumes}.")
    failed = sum(not check.passed for check in audited.checks)
    with st.expander(f"{len(audited.checks)} checks of the noise, {failed} failed", expanded=failed > 0):
        rows = [
            {
                "check": check.name,
                "": "passed" if check.passed else "failed",
                "p-value": check.p_value,
                "seen": check.words,
            }
            for check in audited.checks
        ]
        st.dataframe(rows, hide_index=True, column_config={"p-value": st.column_config.NumberColumn(format="%.2g")})
    with st.expander("The claim, and the cells that it is for"):
        st.text(audited.claim)
        for label in one.cells:
            st.text(label or "every cell")


@st.fragment
def _gallery(run: Run) -> None:
    """Reconstructions below the truth."""
    found = rebuilt(run)
    if not found:
        empty("No attack of this run rebuilds inputs.", "fedguard run examples/privacy.yaml")
        return
    columns = st.columns(3)
    for column, what in zip(columns, ("setting", "attack", "defense"), strict=True):
        known = list(dict.fromkeys(getattr(one.place, what) for one in found))
        chosen = column.selectbox(what.capitalize(), ["all", *known], key=f"gallery_{what}", bind="query-params")
        found = [one for one in found if chosen in ("all", getattr(one.place, what))]
    pages = -(-len(found) // SHOWN)
    page = 1
    if pages > 1:
        page = st.number_input(f"Page (of {pages}, {len(found)} targets)", 1, pages, key=f"gallery_page_of_{pages}")
    st.caption(
        "Above what was there, below what was found, in pairs of rows of up to 16, at most 64 inputs of a target. Shades "
        "span the range of the true inputs. The gain is above the best guess that looks at nothing; exact is 60 dB and more, "
        "nearer than any guess is 1 dB and more above each such guess at the same input. "
        "Brackets hold the 95 % interval over the inputs of one target."
    )
    shown = found[(page - 1) * SHOWN : page * SHOWN]
    for pair in (shown[start : start + 2] for start in range(0, len(shown), 2)):
        for column, one in zip(st.columns(2), pair, strict=False):
            with column.container(border=True):
                _reconstruction(one)


def _reconstruction(one: ReconstructionResult) -> None:
    place, score = one.place, one.score
    figures = (
        f"PSNR {_over_inputs(score['psnr'], FIGURES['psnr'])}, gain {_over_inputs(score['gain'], FIGURES['psnr_gain'])} above "
        f"{str(score['best_baseline']).replace('_', ' ')}, SSIM {_over_inputs(score['ssim'], FIGURES['ssim'])}, "
        f"{score['exact']} of {score['images']} exact"
        + (f", {score['revealed']} nearer than any guess" if "revealed" in score else "")
    )
    plain(f"{place.attack} against {place.defense}, seed {place.seed}, target {one.target}")
    st.text(place.setting)
    st.text(figures)
    if one.arrays is None:
        st.info("Its arrays are not in the folder of the run, or cannot be told from those of other targets.")
        return
    try:
        drawn = _load_picture(str(one.arrays), one.arrays.stat().st_mtime_ns)
    except (StoreError, OSError) as error:
        st.warning("Its arrays cannot be shown.")
        plain(str(error))
        return
    if drawn is None:
        st.info("These inputs are no images; the arrays of truth and claim lie in:")
        plain(str(one.arrays))
        return
    st.image(
        drawn,
        output_format="PNG",
        alt=f"Truth above, reconstruction below: {place.attack} against {place.defense}; {figures}",
    )


def _over_inputs(spread: Mapping[str, Any] | None, known: Metric) -> str:
    """The mean over inputs, with an interval within the metric's bounds."""
    if spread is None or not spread.get("values"):
        return "-"
    return known.format_with_unit(known.estimate(spread["values"]))


@st.cache_data(max_entries=64, show_spinner=False)
def _load_picture(path: str, stamp: int) -> bytes | None:  # noqa: ARG001  part of the cache's key
    return picture(Path(path))


PARTS: dict[str, Callable[[Run], None]] = {
    "What is proven": _proven,
    "What it costs": _costs,
    "Membership": _members,
    "Audits": _show_audits,
    "Gallery": _gallery,
}
