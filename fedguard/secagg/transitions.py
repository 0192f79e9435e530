"""Who may say what, when: the whole protocol as data.

A client goes down its table, one message at a time; a message without an entry for its state is refused and leaves the state
as it was. A server waits for one kind of message in each of its states; when it closes the state, it sends the next message to
all clients that are left.

      client                        message                              server
      NEW          <------ HELLO     configuration, nonce
                   ADVERTISE ------> fresh public keys                    ADVERTISING
      ADVERTISED   <------ ROSTER    all keys, signed                             \
                   SHARE ----------> encrypted shares, commitments        SHARING   | fewer than the quorum: abort
      SHARED       <------ SHARES    U2, and the shares for this client            /
                   MASKED ---------> masked input                         MASKING
      MASKED       <------ SURVIVORS U3, and that its members masked for U2
                   ATTEST ---------> signature over U2 and U3             ATTESTING
      ATTESTED     <------ QUORUM    the signatures
                   UNMASK ---------> b of U3, mask keys of U2 \\ U3        UNMASKING
      DONE                                                                DONE: the sum
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from fedguard.secagg.codec import Phase


class ClientState(enum.Enum):
    """State of a client; error messages quote the value."""

    NEW = "waiting for a session"
    ADVERTISED = "waiting for the roster"
    SHARED = "waiting for shares"
    MASKED = "waiting for the survivors"
    ATTESTED = "waiting for a quorum"
    DONE = "done"
    ABORTED = "aborted"


class ServerState(enum.Enum):
    """State of a server, named after what it collects."""

    ADVERTISING = "collecting keys"
    SHARING = "collecting shares"
    MASKING = "collecting masked inputs"
    ATTESTING = "collecting attestations"
    UNMASKING = "collecting revealed shares"
    DONE = "done"
    ABORTED = "aborted"


# States only go forward, and each takes one message: so no secret is used for two answers, whatever the server repeats
#: (state, message) -> (what the client does, the state after it).
CLIENT: Mapping[tuple[ClientState, Phase], tuple[str, ClientState]] = {
    (ClientState.NEW, Phase.HELLO): ("advertise", ClientState.ADVERTISED),
    (ClientState.ADVERTISED, Phase.ROSTER): ("share", ClientState.SHARED),
    (ClientState.SHARED, Phase.SHARES): ("mask_input", ClientState.MASKED),
    (ClientState.MASKED, Phase.SURVIVORS): ("attest", ClientState.ATTESTED),
    (ClientState.ATTESTED, Phase.QUORUM): ("unmask", ClientState.DONE),
}

#: The same against a server that is trusted to show everybody the same survivors: no consistency round.
TRUSTING_CLIENT: Mapping[tuple[ClientState, Phase], tuple[str, ClientState]] = {
    **{key: value for key, value in CLIENT.items() if key[1] < Phase.SURVIVORS},
    (ClientState.MASKED, Phase.SURVIVORS): ("unmask_trusting", ClientState.DONE),
}

#: state -> (the message it takes, what it does with one, what it does when it closes, the state after that).
SERVER: Mapping[ServerState, tuple[Phase, str, str, ServerState]] = {
    ServerState.ADVERTISING: (Phase.ADVERTISE, "keep_keys", "roster_of_keys", ServerState.SHARING),
    ServerState.SHARING: (Phase.SHARE, "keep_shares", "deliveries", ServerState.MASKING),
    ServerState.MASKING: (Phase.MASKED, "add_input", "survivors", ServerState.ATTESTING),
    ServerState.ATTESTING: (Phase.ATTEST, "keep_signature", "quorum", ServerState.UNMASKING),
    ServerState.UNMASKING: (Phase.UNMASK, "keep_revealed", "sum_of_inputs", ServerState.DONE),
}

TRUSTED_SERVER: Mapping[ServerState, tuple[Phase, str, str, ServerState]] = {
    **{state: row for state, row in SERVER.items() if row[0] < Phase.MASKED},
    ServerState.MASKING: (Phase.MASKED, "add_input", "survivors", ServerState.UNMASKING),
    ServerState.UNMASKING: SERVER[ServerState.UNMASKING],
}
