"""The process in which a submission is checked: it reads one request as JSON, and writes lines of JSON as it goes.

Whatever the submission prints goes nowhere, so that it cannot write lines of its own into the answer by accident.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedguard.bench.acceptance.case import ContractCase


def main() -> None:
    """Run the checks that were asked for, and say of each when it starts, what it found, and when it is done."""
    request = json.loads(sys.stdin.readline())
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    process = os.getpid()

    def say(**line: Any) -> None:
        if os.getpid() == process:  # a child that the submission forked says nothing
            out.write(json.dumps(line) + "\n")
            out.flush()

    try:
        _check(request, say)
    except BaseException as error:
        from fedguard.bench.acceptance.rounds import explain_error

        say(error=explain_error(error))
    say(end=time.process_time())
    out.flush()
    os._exit(0)  # threads that the submission started must not keep the process


def _check(request: Mapping[str, Any], say: Any) -> None:
    import torch

    from fedguard.bench.acceptance.case import ContractCase
    from fedguard.bench.acceptance.contracts.determinism import fingerprint
    from fedguard.bench.acceptance.seeds import report_seeds
    from fedguard.bench.acceptance.standard import load_standard
    from fedguard.bench.acceptance.submission import read_submission
    from fedguard.bench.acceptance.watch import CodeSnapshot, Watch
    from fedguard.registry import load_registry

    torch.set_num_threads(1)
    standard = load_standard(request["standard"])
    sizes = standard.contracts
    list(load_registry().classes(["attack", "defense"]))  # what is imported later could not be compared
    before, watch = CodeSnapshot(), Watch(_folder(request["given"]))
    _limit_memory(sizes.process_gib)
    say(start="import")
    with watch.refuse_reaching():
        submission = read_submission(request["given"])
        case = ContractCase(submission, sizes, watch, before, report_seeds(submission, standard))
        say(submission={"pipeline": submission.text, "digest": submission.digest})
        if request.get("fingerprint"):
            say(fingerprint=fingerprint(case))
            return
        if "rerun" in request:
            _rerun(request["rerun"], submission.registry, say)
            return
        _run_checks(case, request, say)


def _run_checks(case: ContractCase, request: Mapping[str, Any], say: Any) -> None:
    """Run the checks that are not to be skipped, and say what each found."""
    from fedguard.bench.acceptance.contracts import CHECKS
    from fedguard.bench.acceptance.findings import AcceptanceFinding
    from fedguard.bench.acceptance.rounds import explain_error

    broken = bool(request["broken"])
    for name, check in CHECKS.items():
        if name in request["skip"]:
            continue
        say(start=name)
        try:
            for finding in check(case):
                say(finding=finding.as_dict())
                broken |= finding.level == "failed"
        except MemoryError:
            say(missing=name, reason=f"it needs more than {case.sizes.process_gib:g} GiB")
        except Exception as error:
            # What was found before explains it; of a rule that is whole so far, the error is the finding
            reason = "its rounds raise errors" if broken else f"it raises {explain_error(error).rstrip('.')}"
            say(missing=name, reason=reason)
        except BaseException as error:  # SystemExit: it ends whatever process it runs in
            words = f"In the check {name}, it raises {explain_error(error)}"
            finding = AcceptanceFinding(
                "ends_process", "failed", words, remedy="Raise an error that says what is wrong."
            )
            say(finding=finding.as_dict())
            say(missing=name, reason="it ends its process")
            broken = True
        else:
            say(done=name)


def _rerun(asked: Sequence[Mapping[str, Any]], registry: Any, say: Any) -> None:
    """Repeat trials; of one that fails, the result is None."""
    from fedguard.bench.running.trial import run_trial
    from fedguard.config import build_cell
    from fedguard.config.schema import CellConfig

    for number, one in enumerate(asked):
        try:
            cell = build_cell(CellConfig.model_validate(one["config"]), registry)
            result = json.loads(json.dumps(run_trial(cell, one["seed"], {})[0]["result"]))
        except Exception:
            result = None
        say(rerun=number, result=result)


def _folder(given: str) -> Any:
    from pathlib import Path

    path = Path(given)
    return path.absolute().parent if path.suffix == ".py" else None


def _limit_memory(gib: float) -> None:
    """Let this process hold no more than so much data; mapped files of libraries do not count."""
    most = int(gib * 2**30)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
