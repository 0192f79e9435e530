"""The page on privacy: what each protection claims, what still leaks, what is left of the accuracy, and whether claims hold."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fedguard.bench.audits.suites import CellAudit, StoredAudit, load_audit
from fedguard.bench.pages.blocks import (
    Action,
    Address,
    Block,
    Chip,
    Choice,
    Heading,
    More,
    Picture,
    Pictures,
    Prose,
    TableBlock,
    Verdict,
    choose,
)  # fmt: skip
from fedguard.bench.pages.page import Page
from fedguard.bench.pages.privacy_chart import ladder, roc
from fedguard.bench.pages.protections import Protection, list_protections, other_keys
from fedguard.bench.pages.trained import describe_training, percent, references, states
from fedguard.bench.records.reasons import reason_lines
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
from fedguard.bench.results.trilemma import LEAKAGE, Trilemma, WorstAttack, points
from fedguard.errors import StoreError
from fedguard.metrics.figures import FIGURES, PRIVACY_GOALS
from fedguard.metrics.stats import ENOUGH, over_seeds

#: Pairs of images of one target in its picture, and the bytes of all pictures of a page
PAIRS, ROOM = 8, 1_000_000

#: What an epsilon is
_BOUND = (
    "An ε is an upper bound on what one record or one client changes; smaller hides more. The ε of a record and of a client "
    "are different claims."
)


def blocks(run: Run, address: Address) -> Iterator[Block]:
    """The protections under one defense, and under one setting of the keys that are no protection."""
    ran = [row for row in run.rows() if row["status"] == "ok"] or run.rows()
    others = list(dict.fromkeys(setting(row, other_keys(run)) for row in ran))
    defenses = list(dict.fromkeys(row["defense"] for row in ran))
    other = choose(address, "setting", others, others[0] if others else "")
    defense = choose(address, "defense", defenses, defenses[0] if defenses else "")
    stored, unread = _load(run)
    found = list_protections(run, other, defense, stored)
    verdict = _verdict(run, found, stored, unread)
    yield verdict
    if not _asks_privacy(found):
        return
    if len(others) > 1:
        yield Choice("setting", ", ".join(other_keys(run)), others, other)
    if len(defenses) > 1:
        yield Choice("defense", "defense", defenses, defense)
    cells = [row["cell"] for one in found for row in one.rows]
    claim = f"{verdict.headline}. {' '.join(verdict.lead)}"
    note = Trilemma(run.name, points(run.rows(), run.swept)).note
    audited = any(one.audits for one in found)
    fewer = "of N audited: an audit runs fewer rounds than the run, for which N is claimed." if audited else ""
    yield ladder(found, claim, references(run, cells), f"{fewer} {note}".strip())
    named = {setting(row, run.swept): one for one in found for row in one.rows}
    yield from _pictures(run, named, defense)
    yield from _claims(run)
    yield from _audits(run, stored, unread)
    yield from _members(run, named, defense)
    yield from _reconstructions(run)
    yield from _costs(run)
    yield from _refusals(run, found)


def _load(run: Run) -> tuple[StoredAudit | None, str]:
    """The audit of the run, or why it cannot be read."""
    try:
        return load_audit(run.folder), ""
    except StoreError as error:
        return None, str(error)


def _asks_privacy(found: Sequence[Protection]) -> bool:
    """Whether anything on this page is asked."""
    return any(one.noisy or one.masks or any(row["goal"] in PRIVACY_GOALS for row in one.rows) for one in found)


def _verdict(run: Run, found: Sequence[Protection], stored: StoredAudit | None, unread: str) -> Verdict:
    chips = [*states(run)]
    if len(run.seeds) < ENOUGH:
        chips.append(Chip(f"{len(run.seeds)} seed{'s' * (len(run.seeds) > 1)}: no intervals over seeds", "warn"))
    if not _asks_privacy(found):
        said = "It has no noise, no masks and no attack on the clients' privacy."
        examples = [
            Action("A suite that does:", f"fedguard run examples/{name}.yaml") for name in ("privacy", "privacy_cost")
        ]
        return Verdict("This run asks nothing about privacy", [said], describe_training(run), chips, examples)
    claimed = [one for one in found if one.epsilon is not None]
    audited = stored is not None and stored.audits
    config = run.folder.path / "config.resolved.yaml"
    command = ["fedguard", "audit", str(config), "--store", str(run.folder.path.parent), "--name", run.name]
    audit = [] if audited or unread or not claimed else [Action("Not audited yet:", shlex.join(command))]
    lead = [*_leads(found), *_says_audit(stored.audits if stored else (), unread)]
    return Verdict(_headline(found, claimed), lead, describe_training(run), chips, audit)


def _headline(found: Sequence[Protection], claimed: Sequence[Protection]) -> str:
    groups = {
        "without protection": [one for one in found if not one.masks and not one.noisy],
        "behind secure aggregation alone": [one for one in found if one.masks and not one.noisy],
        "with noise": [one for one in found if one.noisy],
    }
    shares = {
        name: leak
        for name, its in groups.items()
        if (
            leak := max(
                (leak for one in its for leak in one.leaks.values() if leak.share is not None),
                key=lambda leak: leak.share or 0.0,
                default=None,
            )
        )
    }
    if shares:
        parts = [(name, percent(leak.share or 0.0) if leak.revealed else "none") for name, leak in shares.items()]
        (first, share), *rest = parts
        return _join(
            [f"{first.capitalize()} a server rebuilds {share} of the inputs", *(" ".join(one) for one in rest)]
        )
    aucs = {
        name: max((one.auc for one in its if one.auc), key=lambda one: one.estimate.mean, default=None)
        for name, its in groups.items()
    }
    text = FIGURES["membership_auc"].text
    said = [f"{text(one.estimate.mean)} {name}" for name, one in aucs.items() if one]
    if said:
        return f"Membership attacks reach an AUC of {_join(said)}; 0.5 is chance"
    if claimed:
        said = [f"ε = {one.claim} ({one.name})" for one in claimed]
        return f"This run claims {_join(said[:3])}, and no attack of it tests the clients' privacy"
    return "No protection of this run has an ε, and no attack of it that ran is on the clients' privacy"


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _leads(found: Sequence[Protection]) -> Iterator[str]:
    masked = [(one, server, leak) for one in found if one.masks and not one.noisy for server, leak in one.leaks.items()]
    leaking = [(server, leak) for _, server, leak in masked if leak.revealed]
    if leaking:
        server, leak = max(leaking, key=lambda one: one[1].share or 0.0)
        yield (
            f"Secure aggregation alone proves nothing about the sum: a {server} server still rebuilds {leak.revealed} of "
            f"{leak.images} inputs ({leak.attack})."
        )
    plain = next((one.summary.clean for one in found if not one.noisy and one.summary and one.summary.clean), None)
    noisy = [(one, one.summary.clean) for one in found if one.noisy and one.summary and one.summary.clean]
    if plain and noisy:
        said = _join([f"{percent(clean.mean)} with {one.name}" for one, clean in noisy])
        yield f"Mean accuracy without attack is {percent(plain.mean)} without noise, {said}."


def _says_audit(audits: Sequence[CellAudit], unread: str) -> Iterator[str]:
    judged = [one for one in audits if one.audit.verdict in ("consistent", "violated")]
    violated = [one.audit.subject for one in judged if one.audit.verdict == "violated"]
    if unread:
        yield "The stored audit cannot be read."
    elif violated:
        yield f"The audit refutes {len(violated)} of {len(judged)} claims: {', '.join(violated)}."
    elif judged:
        yield f"The audit refutes none of {len(judged)} claims, which proves none."


def _pictures(run: Run, named: Mapping[str, Protection], defense: str) -> Iterator[Block]:
    """For each protection and server the first target of the attack that rebuilds most."""
    chosen: dict[tuple[str, str], ReconstructionResult] = {}
    for one in rebuilt(run):
        protection = named.get(one.place.setting)
        if protection and one.place.defense == defense and one.arrays is not None:
            for server, leak in protection.leaks.items():
                if leak.attack == one.place.attack:
                    chosen.setdefault((protection.name, server), one)
    images, left, room = list[Picture](), list[str](), ROOM
    order = {one.name: at for at, one in enumerate(named.values())}
    for (name, server), one in sorted(chosen.items(), key=lambda item: order[item[0][0]]):
        what = f"{name}, {server} server"
        drawn, why = _draw(one)
        if drawn is None or len(drawn) > room:
            left.append(f"{what}: {why or 'left out, since the page would become too large'}.")
            continue
        room -= len(drawn)
        said = f"{what}: {one.place.attack}, seed {one.place.seed}"
        images.append(Picture(drawn, f"Above, inputs; below, what was rebuilt of them. {said}: {_scores(one)}", said))
    said = f"Above, up to {PAIRS} training inputs; below, what the attack rebuilt; gray: nothing claimed."
    if images or left:
        yield Prose([*([said] if images else []), *left], "What the server could look at")
        yield Pictures(images)


def _draw(one: ReconstructionResult) -> tuple[bytes | None, str]:
    assert one.arrays is not None
    try:
        drawn = picture(one.arrays, PAIRS)
    except StoreError as error:
        return None, str(error)
    return drawn, "" if drawn else f"these inputs are no images; truth and claim lie in {one.arrays}"


def _scores(one: ReconstructionResult) -> str:
    score = one.score
    spreads = [("PSNR", "psnr", "psnr"), ("gain", "gain", "psnr_gain"), ("SSIM", "ssim", "ssim")]
    said = [
        f"{name} {FIGURES[figure].format_with_unit(FIGURES[figure].estimate(score[key]['values']))}"
        for name, key, figure in spreads
        if score.get(key) and score[key].get("values")
    ]
    nearer = f", {score['revealed']} nearer than any guess" if "revealed" in score else ""
    return ", ".join([*said, f"{score['exact']} of {score['images']} exact{nearer}"])


def _claims(run: Run) -> Iterator[Block]:
    found = promises(run)
    proven = [one for one in found if one.epsilon is not None]
    if not proven and all(not one.facts for one in found):
        return
    heads = [Heading("setting"), Heading("ε, exactly"), Heading("hides one"), Heading("against whom, and how")]
    heads += [Heading("noise"), Heading("trials under")]
    rows = [
        [
            _where(one),
            _exactly(one),
            one.unit or "nothing",
            one.words,
            _noise(one),
            f"{one.trials}: {', '.join(one.attacks)}",
        ]
        for one in found
    ]
    rests: dict[str, list[str]] = {}
    for one in found:
        for line in one.facts.get("assumptions") or ():
            rests.setdefault(str(line), []).append(_where(one))
    assumed = [Heading("it is assumed that"), Heading("by")]
    tables = [TableBlock(heads, rows, _BOUND)]
    if rests:
        by = [[line, "; ".join(dict.fromkeys(its))] for line, its in rests.items()]
        tables.append(TableBlock(assumed, by, "What each ε rests on"))
    yield More(f"What each ε protects, against whom, under which assumptions ({len(proven)})", tables, _whole(run))


def _exactly(one: PrivacyClaim) -> str:
    """The accountant's figure, as `PrivacyClaim.figure` with more digits."""
    return " to ".join(dict.fromkeys(f"{value:.7g}" for value in one.epsilon)) if one.epsilon else one.figure


#: Properties of the noise that a reader may want to compare
_NOISE = ("mechanism", "noise_multiplier", "clip", "sample_rate", "divided_by", "rounds", "contributors")


def _noise(one: PrivacyClaim) -> str:
    said = {key.replace("_", " "): one.facts[key] for key in _NOISE if one.facts.get(key) is not None}
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in said.items()
    )


def _where(one: PrivacyClaim) -> str:
    return one.setting or "every cell"


def _whole(run: Run) -> str:
    return f"fedguard show {shlex.quote(run.name)} --page privacy --all"


def _audits(run: Run, stored: StoredAudit | None, unread: str) -> Iterator[Block]:
    if unread:
        yield Prose([unread], "The audit cannot be read")
    if stored is None or not stored.audits:
        return
    when = datetime.fromtimestamp(stored.time, UTC).strftime("%Y-%m-%d %H:%M UTC")
    made = f"Audited {when} by {stored.method}, commit {stored.commit or 'unknown'}, code {stored.code}."
    scope = (
        "The bound is what canaries prove at least; the claim is the accountant's for the rounds that were audited, which are "
        "fewer than the run's. A bound above its claim refutes it. No audit proves privacy."
    )
    heads = ["audit of", "verdict", "ε found at least", "ε claimed", "canaries", "in words", "the claim", "cells"]
    rows = [
        [name, one.audit.verdict, _say_bound(one), "nothing" if one.audit.claimed is None else f"{one.audit.claimed:.4g}",
         f"{one.audit.canaries:,}", one.audit.words, one.audit.claim, "; ".join(label or "every cell" for label in one.cells)]
        for name, one in zip(audit_names(stored.audits), stored.audits, strict=True)
    ]  # fmt: skip
    checks = [
        [name, check.name, "passed" if check.passed else "failed", f"{check.p_value:.2g}", check.words]
        for name, one in zip(audit_names(stored.audits), stored.audits, strict=True)
        for check in sorted(one.audit.checks, key=lambda check: check.passed)
    ]
    failed = sum(row[2] == "failed" for row in checks)
    seen = ("audit of", "check of the noise", "result", "p-value", "seen")
    tables: list[Block] = [
        Prose([made, *stored.doubts(run), scope]),
        TableBlock([Heading(head) for head in heads], rows, "Audited beside claimed"),
        TableBlock([Heading(head) for head in seen], checks, "Every check, failed ones first"),
    ]  # fmt: skip
    doubt = ", with doubts" if stored.doubts(run) else ""
    title = f"Audit: {len(rows)} claims, {len(checks) - failed} of {len(checks)} checks of the noise passed{doubt}"
    yield More(title, tables, _whole(run))


def audit_names(audits: Sequence[CellAudit]) -> list[str]:
    """The subject of each audit; equal ones with a number."""
    subjects = [one.audit.subject for one in audits]
    return [
        subject if subjects.count(subject) == 1 else f"{subject} ({subjects[: number + 1].count(subject)})"
        for number, subject in enumerate(subjects)
    ]


def _say_bound(one: CellAudit) -> str:
    bound = one.audit.bound
    sure = "an estimate" if bound.confidence is None else f"{100 * bound.confidence:g} % confidence"
    return f"{bound.epsilon:.4g} ({sure}{f', assuming {bound.assumes}' if bound.assumes else ''})"


def _members(run: Run, named: Mapping[str, Protection], defense: str) -> Iterator[Block]:
    targets = [one for one in list_membership_targets(run) if one.score["roc"]]
    if not targets:
        return
    drawn = [
        (named[one.place.setting].name, one)
        for one in targets
        if one.place.setting in named and one.place.defense == defense
    ]
    parts: list[Block] = []
    if any(true > 0 and false > 0 for _, one in drawn for false, true in one.score["roc"]):
        parts.append(
            roc(drawn, "True over false positive rates of the membership attacks, beside the diagonal of chance.")
        )
    parts += [_over_seeds(run, targets), _each_target(targets)]
    yield More(f"Membership: ROC curves and rates of {len(targets)} targets", parts, _whole(run))


def _over_seeds(run: Run, targets: Sequence[MembershipResult]) -> TableBlock:
    pooled: dict[tuple[str, str, str], list[MembershipResult]] = {}
    for one in targets:
        pooled.setdefault((one.place.setting, one.place.attack, one.place.defense), []).append(one)
    alike: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in run.rows():
        if row["goal"] == "membership":
            alike.setdefault((setting(row, run.swept), row["attack"], row["defense"]), []).append(row)
    figures = ("membership_auc", "membership_tpr")
    heads = [
        "setting",
        "attack",
        "defense",
        *(FIGURES[name].heading for name in figures),
        "at 0.1 %, targets and seeds pooled",
    ]
    rows = [
        [*where, *(_mean(rows, name) for name in figures), _pool_rates(pooled.get(where, []))]
        for where, rows in alike.items()
    ]
    return TableBlock([Heading(head) for head in heads], rows, f"Membership inference, {over_seeds(len(run.seeds))}")


def _pool_rates(targets: Sequence[MembershipResult]) -> str:
    """The rate at .1 % over all candidates together."""
    together = pool_target_scores(targets)
    return "unreportable" if together is None else _rate(together["tpr_at_01_percent"], 100, " %")


def _mean(rows: Sequence[Mapping[str, Any]], figure: str) -> str:
    if bad := next((row["status"] for row in rows if row["status"] != "ok"), None):
        return str(bad)
    values = [row[figure] for row in rows]
    return "unreportable" if None in values else FIGURES[figure].format_estimate(FIGURES[figure].estimate(values))


def _each_target(targets: Sequence[MembershipResult]) -> TableBlock:
    heads = ["setting", "attack", "defense", "seed", "target", "members", "non-members", "AUC"]
    heads += ["found at 1 % false positives", "found at 0.1 % false positives"]
    rates = (("auc", 1, ""), ("tpr_at_1_percent", 100, " %"), ("tpr_at_01_percent", 100, " %"))
    rows = [
        [one.place.setting, one.place.attack, one.place.defense, str(one.place.seed), str(one.target),
         f"{one.score['members']:,}", f"{one.score['non_members']:,}",
         *(_rate(one.score[key], scale, unit) for key, scale, unit in rates)]
        for one in targets
    ]  # fmt: skip
    return TableBlock([Heading(head) for head in heads], rows, "Each target, with Clopper-Pearson intervals")


def _rate(rate: Mapping[str, Any], scale: float, unit: str) -> str:
    if rate["value"] is None:
        return f"unreportable: {rate['why']}"
    low, high = rate["interval"]
    return f"{scale * rate['value']:.3g}{unit} [{scale * low:.3g}, {scale * high:.3g}]"


def _reconstructions(run: Run) -> Iterator[Block]:
    targets = rebuilt(run)
    if targets:
        heads = [Heading(head) for head in ("setting", "attack", "defense", "seed", "target", "scores")]
        rows = [
            [one.place.setting, one.place.attack, one.place.defense, str(one.place.seed), str(one.target), _scores(one)]
            for one in targets
        ]
        said = (
            "The gain is above the best guess that looks at nothing; exact is 60 dB and more. Brackets hold the 95 % interval "
            "over the inputs of one target. Pictures and arrays lie in the run's folder, under artifacts."
        )
        yield More(f"Reconstructions: {len(targets)} targets", [TableBlock(heads, rows, said)], _whole(run))


def _costs(run: Run) -> Iterator[Block]:
    """Every defense and setting: the largest epsilon, accuracy, and each leakage under its worst attack."""
    found = points(run.rows(), run.swept)
    figures = [figure for figure in LEAKAGE if any(figure in point.leakage for point in found)]
    if not figures and all(point.epsilon is None for point in found):
        return
    heads = ["setting", "defense", "ε", "final accuracy in %", *(FIGURES[figure].heading for figure in figures)]
    rows = [
        [point.setting or "every cell", point.defense, "none" if point.epsilon is None else f"{point.epsilon:.4g}",
         _worst(point.accuracy, "final_accuracy"), *(_worst(point.leakage.get(figure), figure) for figure in figures)]
        for point in found
    ]  # fmt: skip
    table = TableBlock(
        [Heading(head) for head in heads], rows, f"Each is the worst of its attacks; {over_seeds(len(run.seeds))}"
    )
    command = f"fedguard privacy {shlex.quote(run.name)}"
    yield More(f"Cost and leakage of every defense ({len(rows)})", [table], command)


def _worst(one: WorstAttack | None, figure: str) -> str:
    return "-" if one is None else f"{FIGURES[figure].format_estimate(one.estimate)} ({one.attack})"


def _refusals(run: Run, found: Sequence[Protection]) -> Iterator[Block]:
    rows = [row for one in found for row in one.rows if row["status"] == "refused"]
    if rows:
        cells = len({row["cell"] for row in rows})
        lines = list(reason_lines([(run.place(row), str(row["reason"])) for row in rows], "trials"))
        yield More(f"Refused, and why ({cells} cell{'s' * (cells != 1)})", [Prose(lines)], _whole(run))


PRIVACY = Page("privacy", "Privacy", blocks)
