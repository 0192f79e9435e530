"""Somebody else's results: a table in JSON or CSV with one row per training.

Columns are recognized under many names, in any case (`fedguard.bench.flags.columns`). Flags that need a missing column are
not judged. Columns with a dot, such as ``training.lr``, are swept keys, as in FedGuard's own exports.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedguard.bench.flags.columns import COLUMNS, MAY_BE_EMPTY, ResultColumn
from fedguard.bench.flags.results import Case, Results
from fedguard.bench.records.reading import escape_tree
from fedguard.errors import ConfigError, PreconditionError, escape_control
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.flags import name_of, parameters_of
from fedguard.registry import load_registry

if TYPE_CHECKING:
    from fedguard.contracts import Architecture, Masking

Row = dict[str, Any]

NO_ATTACK = ("", "none", "no_attack", "noattack", "no", "clean", "benign", "null")
PLAIN_MEAN = ("", "none", "no_defense", "no_defence", "mean", "avg", "average", "fedavg", "fedsgd", "plain", "null")
UNMASKED = ("", "none", "off", "false", "no", "0", "plain")
TRUE, FALSE = ("true", "yes", "1", "1.0"), ("", "false", "no", "0", "0.0")


def read_results(path: Path) -> Results:
    """Read a table of results.

    Raises:
        ConfigError: the file cannot be read, has no rows, or has an invalid value.
    """
    rows = _rows(path)
    names = list(dict.fromkeys(name for row in rows for name in row))
    found, unused = _columns(path, names, own=_is_own(names))
    table = [_parse_row(path, number, row, found) for number, row in enumerate(rows, start=1)]
    notes = list(_percent(path, table))
    if unused:
        notes.append(f"Not used: {', '.join(unused)}.")
    table = [row for row in table if row.get("status") in (None, "ok")]
    if not table:
        raise ConfigError(f"{path}: no row has the status ok.")
    if not any(column.name == "final_accuracy" for column in found.values()):
        raise ConfigError(
            f"{path}: expected a column final_accuracy (or accuracy, acc, test_acc ...); got {', '.join(names)}."
        )
    settings = _settings(table)
    if not any("seed" in row for row in table) and _number_the_seeds(table, settings):
        notes.append("There is no column seed, so the rows of a cell were taken for its seeds, in their order.")
    cases = [_case(row, settings) for row in table]
    _find_controls(table, cases, settings)
    return Results(path.name, cases, cases, facts=_facts(table), notes=tuple(notes))


def _rows(path: Path) -> list[Row]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets put a byte-order mark before the first name
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected a text file in UTF-8.") from None
    rows: Any = None
    if path.suffix.lower() == ".json":
        try:
            rows = escape_tree(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: not valid JSON: {error}.") from None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ConfigError(f"{path}: expected a list of objects, one per training.")
    else:
        try:
            rows = list(csv.DictReader(io.StringIO(escape_control(text), newline=""), strict=True))
        except csv.Error as error:
            raise ConfigError(f"{path}: not valid CSV: {error}.") from None
        for number, row in enumerate(rows, start=1):
            if None in row or None in row.values():  # DictReader's marks of a row too long, or too short
                raise ConfigError(f"{path}: row {number}: expected as many values as the first line has names.")
    if not rows:
        raise ConfigError(f"{path}: expected at least one row of results; got none.")
    return list(rows)


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in str(name).strip().lower()).strip("_")


def _is_own(names: Sequence[str]) -> bool:
    """Whether the table is FedGuard's own export, with success rates net of the clean model's."""
    return {"cell", "attack_success", "flags", "status"} <= set(names)


def _columns(path: Path, names: Sequence[str], own: bool) -> tuple[dict[str, ResultColumn], list[str]]:
    """The column of each name in the file, and the names that are not recognized."""
    by_alias = {_plain(alias): column for column in COLUMNS for alias in (column.name, *column.aliases)}
    found: dict[str, ResultColumn] = {}
    unused: list[str] = []
    for name in names:
        column = by_alias.get(_plain(name))
        if column is None and "." in name:
            column = ResultColumn(name, (), setting=True)
        # Our export's attack_success goes by an alias of the raw rate, from which flags would subtract the clean rate again
        if column is None or (own and column.name == "attack_success_raw"):
            unused.append(name)
            continue
        twice = next((other for other, known in found.items() if known.name == column.name), None)
        if twice is not None:
            raise ConfigError(f"{path}: columns {twice!r} and {name!r} both mean {column.name}. Drop one.")
        found[name] = column
    return found, unused


def _parse_row(path: Path, number: int, row: Row, columns: Mapping[str, ResultColumn]) -> Row:
    """The row's values by the columns' own names. Empty values are left out, except texts and `MAY_BE_EMPTY`."""
    parsed: Row = {}
    for name, column in columns.items():
        value = row.get(name)
        text = "" if value is None else str(value).strip()
        if column.kind == "text":
            parsed[column.name] = text
        elif column.kind == "truth":
            if text.lower() not in (*TRUE, *FALSE):
                raise _row_error(path, number, name, "true or false", value)
            parsed[column.name] = text.lower() in TRUE
        elif text.lower() not in ("", "none", "null", "-", "n/a", "na"):
            parsed[column.name] = _number(path, number, name, column, text)
        else:
            parsed[column.name] = None
    return {key: value for key, value in parsed.items() if value is not None or key in MAY_BE_EMPTY}


def _number(path: Path, number: int, name: str, column: ResultColumn, text: str) -> float | None:
    try:
        value = float(text.removesuffix("%").strip())
    except ValueError:
        raise _row_error(path, number, name, "a number", text) from None
    if not math.isfinite(value) and column.name != "loss":  # a loss that is not finite is how a training diverged
        if math.isnan(value):
            return None
        raise _row_error(path, number, name, "a finite number", text)
    return value


def _row_error(path: Path, number: int, name: str, what: str, got: object) -> ConfigError:
    return ConfigError(f"{path}: row {number}: {name}: expected {what}; got {str(got)!r}.")


def _percent(path: Path, table: Sequence[Row]) -> Iterator[str]:
    """Turn percent into shares, in place, if the file is in percent."""
    # Decided for the file as a whole: by itself, 0.9 may be a good accuracy or a very low one in percent
    shares = [column.name for column in COLUMNS if column.kind == "share"]
    largest = max((row[name] for row in table for name in shares if row.get(name) is not None), default=0.0)
    if largest > 1:
        yield "Accuracies and rates were read as percent, because some are above 1."
        for row in table:
            row.update({name: row[name] / 100 for name in shares if row.get(name) is not None})
    for number, row in enumerate(table, start=1):
        for name in shares:
            if row.get(name) is not None and not 0 <= row[name] <= 1:
                raise _row_error(path, number, name, "a share in [0, 1], or percent", row[name])


def _settings(table: Sequence[Row]) -> list[str]:
    """The columns that distinguish trainings beside attack, defense and seed: columns with more than one value."""
    known = {column.name: column for column in COLUMNS}
    names = dict.fromkeys(name for row in table for name in row)
    swept = [name for name in names if name not in known or known[name].setting]
    return [name for name in swept if len({row.get(name) for row in table}) > 1]


def _number_the_seeds(table: Sequence[Row], settings: Sequence[str]) -> bool:
    """Number the rows of each cell in place of seeds, and return whether any cell has several rows."""
    seen: Counter[tuple[str, str | None, str]] = Counter()
    cells = [(_setting(row, settings), _attack(row), _defense(row)) for row in table]
    if len(set(cells)) == len(cells):  # nothing to number, and "seed 0" would claim knowledge of a seed
        return False
    for row, cell in zip(table, cells, strict=True):
        row["seed"] = float(seen[cell])
        seen[cell] += 1
    return True


def _case(row: Row, settings: Sequence[str]) -> Case:
    attack, defense = _attack(row), _defense(row)
    result: Row = {}
    card: Row = {}
    if "defense" in row:
        card["defense"] = defense
    if "root_data" in row:
        card["root_data"] = _root(row)
    for name in row:
        if (name in FIGURES and FIGURES[name].aliases) or name == "chance" or name.startswith("attack_s"):
            result[name] = row[name]
        elif name.split(".")[0] in ("controls", "references", "attack_notes", "aggregate"):
            part, key = name.split(".")
            result.setdefault(part, {})[key] = row[name]
        elif name in ("dissimilarity", "partition_seed", "noise", "epsilon"):
            card[name] = row[name]
    result.setdefault("controls", {})
    if "attack" in row:
        card["attack"], card["goal"] = attack, _goal(attack, row)
    if "chance" not in row and row.get("classes"):
        result["chance"] = 1 / row["classes"]
    if "loss" in row:
        result["diverged"] = not math.isfinite(row["loss"])
    if "partition" in row or "alpha" in row:
        card["partition"] = _partition(row)
    _counts(row, card)
    _what_is_known_of(defense, row, card)
    seed = int(row["seed"]) if "seed" in row else None
    return Case(_setting(row, settings), attack, defense, seed, result, card)


def _attack(row: Row) -> str | None:
    text = str(row.get("attack", ""))
    if _plain(text) in NO_ATTACK:
        return None
    name, _, rest = text.partition("(")
    label = _plain(name) + (f"({rest}" if rest else "")
    return f"{label}(z={row['z']:g})" if name_of(label) == "alie" and "z" in row and not rest else label


def _defense(row: Row) -> str:
    if "defense" not in row:
        return "an unnamed defense"
    text = str(row.get("defense", ""))
    if _plain(text) in PLAIN_MEAN:
        return "mean"
    stages = []
    for stage in text.split(">>"):
        name, _, rest = stage.strip().partition("(")
        stages.append(_plain(name) + (f"({rest}" if rest else ""))
    return " >> ".join(stages)


def _goal(attack: str | None, row: Row) -> str | None:
    if attack is None:
        return None
    known = load_registry()
    if name_of(attack) in known.names("attack"):
        kind = known.get("attack", name_of(attack))
        return getattr(kind, "goal", None)  # an ensemble has none
    return "backdoor" if "attack_success_raw" in row else None


def _root(row: Row) -> Row | None:
    examples = row.get("root_data")
    if not examples:
        return None
    return {"examples": round(examples), "overlap_with_test": row.get("overlap_with_test")}


def _partition(row: Row) -> str:
    name = _plain(name_of(row.get("partition", ""))) or "dirichlet"
    given = parameters_of(row.get("partition", ""))
    if "alpha" in row:
        given["alpha"] = row["alpha"]
    return f"{name}({', '.join(f'{key}={value:g}' for key, value in given.items())})" if given else name


def _counts(row: Row, card: Row) -> None:
    """n and f as numbers of clients; an f below 1 is a fraction of all clients."""
    n: float | None = row.get("clients", row.get("per_round"))
    if n is not None:
        card["clients"], card["per_round"] = round(n), round(float(row.get("per_round", n)))
    for name in ("malicious", "assumed_f"):
        if name in row and (row[name] >= 1 or row[name] == 0):
            card[name] = round(row[name])
        elif name in row and n is not None:
            card[name] = round(row[name] * n)


def _what_is_known_of(defense: str, row: Row, card: Row) -> None:
    """For a defense that FedGuard knows: whether its preconditions hold, and whether the server saw what it needs."""
    try:
        pipeline = load_registry().pipeline(defense)
    except ConfigError:
        return
    f = card.get("assumed_f", card.get("malicious"))
    if "per_round" in card and f is not None and 0 <= f < card["clients"]:
        told = -(-f * card["per_round"] // card["clients"])  # f's share of a cohort, rounded up
        try:
            pipeline.check(card["per_round"], told)
            card["unproven"] = pipeline.unproven(card["per_round"], told)
        except PreconditionError as error:
            card["unproven"] = [str(error)]
    if "secure_aggregation" in row:
        from fedguard.visibility import derive_exposure  # here, since it loads torch, as the rule above did

        # A mode that FedGuard does not know counts as full, in which the server sees the sum alone
        named, modes = _plain(row["secure_aggregation"]), load_registry().names("masking")
        found = "none" if named in UNMASKED else named if named in modes else "full"
        server = cast("type[Architecture]", load_registry().get("architecture", "server"))
        mode = cast("type[Masking]", load_registry().get("masking", found))
        card["secure_aggregation"] = mode.name
        card["server_shown"] = derive_exposure(server.exposes, mode, bool(card.get("root_data"))).server.names()
        card["rule_needs"] = {stage.name: [way.names() for way in stage.needs] for stage in pipeline.stages}
        card["server_sees"] = []


def _setting(row: Row, settings: Sequence[str]) -> str:
    there = [(name, row[name]) for name in settings if row.get(name) is not None]
    return ", ".join(
        f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in there
    )


def _find_controls(table: Sequence[Row], cases: Sequence[Case], settings: Sequence[str]) -> None:
    """Fill in controls from other rows of the same setting and seed; values from columns take precedence.

    The row of a training without attack may have any f.
    """
    if not all("attack" in row and "defense" in row for row in table):
        return
    without_f = [name for name in settings if name not in ("malicious", "assumed_f")]
    final: dict[tuple[str, int | None, str | None, str], float] = {}
    clean: dict[tuple[str, int | None, str], float] = {}
    for row, case in zip(table, cases, strict=True):
        if "final_accuracy" in row:
            # Tables often state clean rows once, with f = 0: they serve every f of the setting
            final[case.setting, case.seed, case.named, case.defense] = row["final_accuracy"]
            if case.named is None:
                clean.setdefault((_setting(row, without_f), case.seed, case.defense), row["final_accuracy"])
    for row, case in zip(table, cases, strict=True):
        controls, without = case.result["controls"], _setting(row, without_f)
        for name, defense in (("clean_mean", "mean"), ("clean_defense", case.defense)):
            same = final.get((case.setting, case.seed, None, defense))
            controls.setdefault(name, clean.get((without, case.seed, defense)) if same is None else same)
        if case.named is not None:
            controls.setdefault("attack_mean", final.get((case.setting, case.seed, case.named, "mean")))


def _facts(table: Sequence[Row]) -> Row:
    tuning: Row = {}
    judged = {_plain(row["judged_on"]) for row in table if row.get("judged_on")}
    attacks = {_attack({"attack": row["attacks"]}) for row in table if row.get("attacks")}
    if judged:
        tuning["judged_on"] = "test" if any(one.startswith("test") for one in judged) else judged.pop()
    if attacks:
        tuning["attacks"] = sorted(attack for attack in attacks if attack is not None)
    return {"tuning": tuning} if tuning else {}
