"""Errors lead to no secret: not in the local variables of the frames that they came through, nor behind them."""

import dataclasses
import traceback

import numpy as np
import pytest

from fedguard.errors import ContractError
from fedguard.secagg import codec, errors, keys, messages
from fedguard.secagg.codec import Phase
from tests.secagg.rounds import Round
from tests.secagg.test_refusals import altered, bent_shares, edit, lenient


def low_order_key(run):
    """Of the last client; the secrets that were agreed on with all before it stood in the frame."""
    run = lenient(run)
    run.run(altered(Phase.ADVERTISE, edit(mask_key=bytes(32)), sender=4, run=run))


def input_of_another_type(run):
    secret = run.inputs[0].astype(np.uint64)
    run.clients[0] = run.client(0, vector=lambda sid: secret)
    run.run()


def input_that_fails(run):
    def vector(sid):
        drawn = run.inputs[0].copy()
        raise ContractError(f"{len(drawn)} numbers, and no disk")

    run.clients[0] = run.client(0, vector=vector)
    run.run()


def share_of_another_commitment(run):
    bent_shares(run, 4, lambda make, v, shares: dataclasses.replace(make(v, shares), seed_share=bytes(32)))
    run.run()


def other_survivors(run):
    run.run(altered(Phase.SURVIVORS, edit(included=frozenset([1, 2, 3])), receiver=0))


def no_quorum(run):
    run.run(altered(Phase.QUORUM, edit(signers=frozenset(), signatures=()), receiver=0))


def another_seed_than_committed(run):
    """Seen by the server, which has rebuilt seeds by then."""
    share = run.clients[4]._share
    run.clients[4]._share = lambda header, roster: dataclasses.replace(share(header, roster), seed=bytes(32))
    run.run()


WAYS = [
    low_order_key, input_of_another_type, input_that_fails, share_of_another_commitment, other_survivors, no_quorum,
    another_seed_than_committed,
]  # fmt: skip


class Watched(Round):
    """Remembers every secret that is drawn, agreed on or rebuilt, and keeps the errors that no party catches."""

    def __init__(self, monkeypatch):
        self.secrets, agree, derived = [], keys.KeyPair.agree, keys._derive_key
        monkeypatch.setattr(keys.KeyPair, "agree", lambda pair, public: self.keep(agree(pair, public)))
        monkeypatch.setattr(
            keys, "_derive_key", lambda sid, material, *facts: derived(sid, self.keep(material), *facts)
        )  # seeds that a server rebuilt, too
        super().__init__(5, length=6)
        self.inputs = np.arange(4_000_000_000, 4_000_000_030, dtype=np.uint32).reshape(5, 6)
        self.uncaught = []

    def keep(self, secret):
        self.secrets.append(bytes(secret))
        return secret

    def _ask(self, who, question, *arguments):
        try:
            return super()._ask(who, question, *arguments)
        except Exception as error:
            self.uncaught.append(error)
            return None

    def client(self, i, **changed):
        made = super().client(i, **changed)
        made._entropy, draw = lambda count: self.keep(draw(count)), made._entropy
        return made

    def reports(self) -> list[str]:
        """As crash reports tell the errors, from the frames of the package on, suppressed ones too."""
        found = [error for _, error in self.complaints] + self.uncaught
        for error in found:
            found += [behind for behind in (error.__context__, error.__cause__) if behind is not None]
        return ["\n".join(told(error)) for error in found]

    def leaks(self) -> list[str]:
        numbers = [str(number) for number in self.inputs.ravel().tolist()]
        dresses = [dress for secret in set(self.secrets) if any(secret) for dress in (repr(secret)[2:-1], secret.hex())]
        return [dress for dress in dresses + numbers for report in self.reports() if dress in report]


def told(error):
    for frame in traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), capture_locals=True):
        if "secagg" in frame.filename and not frame.filename.endswith("rounds.py"):
            yield from map(str, (frame.locals or {}).values())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_secret_in_a_crash_report(way, monkeypatch):
    run = Watched(monkeypatch)
    way(run)
    assert run.reports() and len(set(run.secrets)) > 20
    assert run.leaks() == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_without_the_broom_the_report_is_seen_to_leak(way, monkeypatch):
    """Where an input or a rebuilt secret is in a frame; in the other ways no frame of ours copies one."""
    monkeypatch.setattr(errors, "forget_locals", lambda error: None)
    run = Watched(monkeypatch)
    way(run)
    assert bool(run.leaks()) == (way in (input_of_another_type, input_that_fails, another_seed_than_committed)), (
        run.leaks()
    )


def test_files_and_lines_stay(monkeypatch):
    run = Watched(monkeypatch)
    low_order_key(run)
    _, error = run.complaints[0]
    told = "".join(traceback.format_exception(error))
    assert "client.py" in told and "in _share" in told and "a point of low order" in told


def test_nothing_of_the_agreed_secrets_is_left(monkeypatch):
    """They are in a form that can be wiped, and are wiped: once a client has masked, and where it aborts."""
    run, agreed = Watched(monkeypatch), []

    def tap(sender, receiver, data):
        if sender >= 0 and codec.read_header(data).phase is Phase.SHARE:
            agreed.extend(secret for pair in run.clients[sender]._agreed.values() for secret in pair)
            assert all(map(any, agreed))
        return data if messages.unpack(data).header.phase < Phase.SURVIVORS else None

    run.run(tap)
    assert len(agreed) == 5 * 4 * 2 and not any(map(any, agreed))


def test_the_error_of_a_round_leads_to_no_client():
    from fedguard.secagg.simulation import ProtocolSimulation, Settings

    zero = np.zeros(2, np.uint32)
    outcome = ProtocolSimulation(Settings(colluding=0)).run(
        round=1, clients=range(4), length=2, vector=lambda i, sid: zero, drop={"masked_input": [0, 1, 2]}
    )
    assert outcome.error is not None and outcome.error.__traceback__ is None
