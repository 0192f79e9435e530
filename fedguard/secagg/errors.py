"""The errors of a round of secure aggregation, and whom each of them blames.

    ProtocolError
    ├── IllegalMessage           not for this point of this session: the party's state stays as it was
    │   ├── MalformedMessage         cannot be parsed
    │   ├── ReplayOrWrongRound       of another session, round, phase or suite
    │   └── AlreadyAnswered          a second request for what is given once
    └── ProtocolAbort            somebody cheats or failed: a client wipes its secrets and stops, a server leaves the sender out
        ├── BadSignature             unknown identity, or a signature that does not verify
        ├── RosterTampered           own entry altered or missing, or a key twice
        ├── BadPublicKey             a low-order point, or a key that is not in its canonical form
        ├── ModelMismatch            parties hold different models or configurations
        ├── PolicyViolation          threshold, number of clients or modulus below the client's own policy, or another encoding
        ├── ShareDecryptError        a share that does not open, or does not fit its commitment; names the sender
        ├── TooFewSurvivors          fewer parties than promised
        ├── BadSurvivorSet           not a subset of the set before, or without the client itself
        ├── InconsistentSurvivors    too few have signed the survivors that this client was shown
        ├── BadMaskedInput           server side: wrong length; names the client
        ├── BadShare                 server side: a revealed share does not fit its commitment; names who revealed it
        └── BadSecret                server side: the rebuilt secret is not the one its owner committed to; names the owner

Every error names the state in which it was raised, and the party to blame if there is proof.
"""

from __future__ import annotations

import traceback

from fedguard.errors import FedGuardError


class ProtocolError(FedGuardError):
    """Base of all errors of the protocol.

    Attributes:
        state: the party that raised it, with its state.
        party: the client that the evidence blames; None if it could be the server, the network or several.
    """

    def __init__(self, state: str, message: str, party: int | None = None) -> None:
        super().__init__(f"{type(self).__name__} while {state}: {message}")
        self.state, self.message, self.party = state, message, party

    def __reduce__(self) -> tuple[type[ProtocolError], tuple[str, str, int | None]]:
        """Copy with the constructor's own arguments; the default would pass the formatted text as the state."""
        return type(self), (self.state, self.message, self.party)


def forget_locals(error: BaseException) -> None:
    """Clear the local variables of all frames that an error and its causes have come through.

    They hold keys, shares and inputs, and crash reports quote them. File names and line numbers remain.
    """
    behind: list[BaseException | None] = [error]
    for one in behind:  # grows while it is walked through
        if one is not None:
            traceback.clear_frames(one.__traceback__)
            behind += [other for other in (one.__cause__, one.__context__) if other not in behind]


class IllegalMessage(ProtocolError):
    """A message that does not belong here; the state stays as it was."""


class MalformedMessage(IllegalMessage):
    """Bytes that are no message of the protocol."""


class ReplayOrWrongRound(IllegalMessage):
    """A message of another session, round, phase or suite."""


class AlreadyAnswered(IllegalMessage):
    """A second request for something that is given once."""


class ProtocolAbort(ProtocolError):
    """Somebody cheats or failed: a client wipes its secrets and stops, a server leaves the sender out."""


class BadSignature(ProtocolAbort):
    """An unknown identity, or a signature that does not verify."""


class RosterTampered(ProtocolAbort):
    """The client's own entry was altered or left out, or a key occurs twice."""


class BadPublicKey(ProtocolAbort):
    """A point of low order, from which no secret can be agreed, or a key that is not in its canonical form."""


class ModelMismatch(ProtocolAbort):
    """A party holds another model or configuration."""


class PolicyViolation(ProtocolAbort):
    """A session that does not meet the client's policy."""


class ShareDecryptError(ProtocolAbort):
    """A share that does not open, or does not fit the commitment that its owner signed."""


class TooFewSurvivors(ProtocolAbort):
    """Fewer parties are left than the session promised."""


class BadSurvivorSet(ProtocolAbort):
    """Survivors that were not in the set before, or a set without the client that receives it."""


class InconsistentSurvivors(ProtocolAbort):
    """Too few parties have signed the same survivors."""


class BadMaskedInput(ProtocolAbort):
    """A masked input of the wrong length."""


class BadShare(ProtocolAbort):
    """A revealed share that does not fit its commitment."""


class BadSecret(ProtocolAbort):
    """A rebuilt secret that is not the one its owner committed to."""
