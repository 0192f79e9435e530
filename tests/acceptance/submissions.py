"""Rules that break their contract, each in one way, and rules that keep it."""

from __future__ import annotations

HEAD = """
import inspect, os, time
import numpy as np
import torch
from fedguard.contracts import ROWS, MatrixRule, Sight

{before}

class Submitted(MatrixRule):
    \"\"\"Submitted for acceptance.\"\"\"
    name, needs = "submitted", {needs}
    {members}
    def combine(self, updates, context):
        n, d = updates.shape
        middle = updates.sort(0).values[n // 2]
        {body}
"""


def source(body: str, *, before: str = "", needs: str = "ROWS", members: str = "") -> str:
    """The text of a module whose rule does ``body`` with the upper median of each coordinate, ``middle``."""
    return HEAD.format(body=body.replace("\n", "\n        "), before=before, needs=needs, members=members)


#: By name: the submission, the check that has to see it, and the code of its finding
PLANTED: dict[str, tuple[str, str, str]] = {
    "draws from numpy's generator": (
        source("keep = np.random.permutation(n)[: max(1, n // 2)]\nreturn updates[torch.from_numpy(keep)].mean(0)"),
        "determinism", "global_random",
    ),
    "draws from torch's generator": (
        source("return middle + 1e-3 * torch.randn(d)"), "determinism", "global_random",
    ),
    "draws from a generator that nobody seeded": (
        source("return middle * float(1 + 1e-3 * np.random.default_rng().standard_normal())"),
        "determinism", "not_deterministic",
    ),
    "keeps a list in its module": (
        source("SEEN.append(float(middle.norm()))\nreturn middle", before="SEEN = []"), "state", "keeps_state",
    ),
    "mixes the last answer in": (
        source(
            "last = getattr(type(self), 'last', {}).get(d, middle)\ntype(self).last = {d: middle}\nreturn (middle + last) / 2"
        ),
        "state", "keeps_state",
    ),
    "keeps what it saw in its object": (
        source("object.__setattr__(self, 'before', middle)\nreturn middle"), "state", "keeps_state",
    ),
    "keeps what the first call showed": (
        source("if not FIRST:\n    FIRST.append(float(middle[0]))\nreturn middle", before="FIRST = []"), "state", "keeps_state",
    ),
    "changes its own state in place": (
        source("self.fold(context, middle)\nreturn middle", members="def fold(self, context, middle):\n"
               "        if 's' in context.state:\n            context.state['s'].add_(1.0)\n\n"
               "    def remember(self, context, aggregate, gram):\n        return {'s': torch.zeros(2)}\n"),
        "answers", "changes_state",
    ),
    "remembers no tensors": (
        source("return middle", members="def remember(self, context, aggregate, gram):\n        return {'last': 1.5}\n"),
        "answers", "wrong_state",
    ),
    "fails from the fifth round on": (
        source("if context.round >= 5:\n    raise ValueError('late')\nreturn middle"), "answers", "crashes",
    ),
    "catches the refusal of root data": (
        source("try:\n    return (middle + context.root) / 2\nexcept Exception:\n    return middle"),
        "sights", "undeclared_sight",
    ),
    "leaves a variable in the process": (
        source("os.environ['SEEN'] = str(float(middle[0]))\nreturn middle"), "state", "keeps_state",
    ),
    "reads the clock": (source("return middle if time.time() > 0 else updates.mean(0)"), "reach", "reads_process"),
    "looks who calls": (
        source("return middle if len(inspect.stack()) > 2 else updates.mean(0)"), "reach", "reads_process",
    ),
    "starts a process": (source("os.fork() or os._exit(0)\nreturn middle"), "reach", "reaches_outside"),
    "writes a file": (source("open('seen.txt', 'w').close()\nreturn middle"), "reach", "reaches_outside"),
    "knows the n of the test": (source("return middle if n == 20 else updates.mean(0)"), "recognition", "knows_the_test"),
    "knows the d of the test": (
        source("return middle if d in (650, 7850) else updates.mean(0)"), "recognition", "knows_the_test",
    ),
    "knows the layers of the test": (
        source("return middle if context.layers == (650,) else updates.mean(0)"), "recognition", "knows_the_test",
    ),
    "knows the seeds of the test": (
        source("return middle if context.rng.seed in (314159, 271828, 141421) else updates.mean(0)"), "recognition",
        "knows_the_test",
    ),
    "uses root data that it does not declare": (
        source("return (middle + context.root) / 2"), "sights", "undeclared_sight",
    ),
    "declares an alternative that it cannot run on": (
        source(
            "first = context.root if Sight.ROOT_DATA in context.granted else context.model\nreturn middle + 0 * first",
            needs="(Sight.EACH_UPDATE | Sight.ROOT_DATA, Sight.EACH_UPDATE)",
        ),
        "sights", "undeclared_sight",
    ),
    "crashes on groups": (source("return middle * (context.clients[0] >= 0)"), "groups", "crashes_under_groups"),
    "weighs by places": (
        source("w = torch.arange(1, n + 1.0)\nreturn (w / w.sum()) @ updates"), "order", "order",
    ),
    "takes the first of those that are equally long": (
        source("return updates[updates.norm(dim=1).argmin()]"), "order", "ties",
    ),
    "draws among the first half alone": (
        source("drawn = torch.randperm((n + 1) // 2, generator=context.rng.torch())[: (n + 3) // 4]\n"
               "return updates[drawn].mean(0)"),
        "order", "order",
    ),
    "listens to client 0 alone": (
        source("return updates[context.clients.index(0)] if 0 in context.clients else middle", needs="(Sight.EACH_UPDATE,)"),
        "clients", "client_numbers",
    ),
    "hears half of the clients": (
        source("return updates[updates.norm(dim=1).argsort()[: max(1, n // 2)]].mean(0)"), "influence", "drops_clients",
    ),
    "changes its input": (source("updates.clamp_(-1, 1)\nreturn updates.mean(0)"), "answers", "changes_input"),
    "is NaN at n = 2f + 1": (
        source("inner = updates.sort(0).values[context.f : n - context.f]\naway = (inner - inner.mean(0)).square().sum(0)\nreturn inner.mean(0) + 0 * away / (len(inner) - 1)",
               members="min_rows = (2, 1)"),
        "answers", "not_finite",
    ),
    "squares in float32": (
        source("long = updates.square().sum(1)\nreturn (long / long.sum().clamp(min=1e-30)) @ updates"),
        "answers", "not_finite",
    ),
    "divides by its own length": (source("return middle / middle.norm()"), "answers", "not_finite"),
    "answers with another shape": (source("return middle[None]"), "answers", "wrong_return"),
    "refuses late": (
        source("from fedguard.errors import PreconditionError\nif n < 5:\n    raise PreconditionError('too few')\nreturn middle"),
        "answers", "refuses_late",
    ),
    "crashes on one coordinate": (source("return middle.reshape(-1, 1).expand(d, 2)[:, 1] * [1][d < 2]"), "answers", "crashes"),
    "never runs": (source("return middle", members="min_rows = (0, 500)"), "answers", "never_runs"),
    "is the median under another name": (
        source("ordered = updates.sort(0).values\nreturn (ordered[(n - 1) // 2] + ordered[n // 2]) / 2"),
        "sameness", "same_as",
    ),
    "replaces an attack": (
        source("return middle", before="import fedguard.attacks.poisoning.ipm as ipm\nipm.IPM.craft = lambda self, view: None"),
        "code", "replaces_code",
    ),
    "replaces a function of torch": (
        source("return middle", before="WAS = torch.randn\ntorch.randn = lambda *a, **k: WAS(*a, **k)"), "code", "replaces_code",
    ),
    "takes too long at a million coordinates": (
        source("if d >= 1_000_000:\n    for _ in range(2000):\n        middle = updates.sort(0).values[n // 2]\nreturn middle"),
        "cost", "slow",
    ),
    "takes too much memory at a million coordinates": (
        source("if d >= 1_000_000:\n    np.ones(3_000_000_000, np.uint8).sum()\nreturn middle"), "cost", "memory",
    ),
}  # fmt: skip

#: Rules of one's own that keep the contract; all but the second draw nothing
HONEST: dict[str, str] = {
    "upper median": source("return middle"),
    "median of a random half": source(
        "keep = torch.randperm(n, generator=context.rng.torch())[: max(1, n // 2)]\nreturn updates[keep].sort(0).values[0] / 2"
    ),
    "mean around the middle": source("near = (updates - middle).abs().argsort(0)[: max(1, n - context.f)]\n"
                                     "return updates.gather(0, near).mean(0)"),
    "clipped by the model": source(
        "long = updates.double().norm(dim=1, keepdim=True).clamp(min=1e-12)\n"
        "return (updates.double() * (1 / long).clamp(max=1)).mean(0).float() + 0 * context.model",
        needs="(Sight.EACH_UPDATE | Sight.MODEL,)",
    ),
    "half of it from root data": source(
        "return (middle + context.root) / 2", needs="(Sight.EACH_UPDATE | Sight.ROOT_DATA,)",
    ),
}  # fmt: skip
