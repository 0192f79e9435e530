"""TensorBoard: a folder of events for each cell and each trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedguard.bench.results.tracking.folders import folder_of, is_there, seal
from fedguard.bench.results.tracking.trials import ExportCount, TrackerEntry
from fedguard.errors import MissingExtra, StoreError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

#: Suffix of our files' names: other files are never removed.
SUFFIX = ".fedguard"


def write(run: str, trials: Sequence[TrackerEntry], target: str) -> ExportCount:
    """Write events to ``target/RUN/CELL/mean`` and ``target/RUN/CELL/seed-N``.

    Args:
        target: a folder, for ``tensorboard --logdir``.

    Raises:
        MissingExtra: TensorBoard is not installed.
        StoreError: the folder cannot be written.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtra("--tensorboard", "tensorboard", "tracking") from None
    new = 0
    try:
        for trial in trials:
            folder = Path(target) / folder_of(run, trial)
            if not is_there(folder, trial):
                folder.mkdir(parents=True, exist_ok=True)
                for old in folder.glob(f"events.*{SUFFIX}"):
                    old.unlink()
                with SummaryWriter(str(folder), filename_suffix=SUFFIX) as events:
                    _write(events, trial)
                seal(folder, trial)
                new += 1
    except OSError as error:
        raise StoreError(f"--tensorboard {target}: cannot be written: {error.strerror}.") from None
    return ExportCount(new, len(trials) - new)


def _write(events: SummaryWriter, trial: TrackerEntry) -> None:
    from torch.utils.tensorboard.summary import hparams

    ended = trial.started + trial.seconds
    for name, text in trial.tags.items():
        events.add_text(name, text, 0, ended)
    of_its_page = hparams(dict(trial.parameters), dict(trial.figures))  # type: ignore[no-untyped-call]
    for one in of_its_page:
        events._get_file_writer().add_summary(one)  # type: ignore[no-untyped-call]
    points = {name: [(0, value)] for name, value in trial.figures.items()} | dict(trial.curves)
    for name, curve in points.items():
        for at, value in curve:
            events.add_scalar(name, value, at, ended)
