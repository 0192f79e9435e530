"""A malicious client in a Flower app: a mod, which sees only its own update."""

from __future__ import annotations

import torch
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedguard.bridges.flower.records import (
    SAMPLES,
    arrays_of,
    decode_update,
    is_training,
    samples_of,
    start_of,
    with_arrays,
)
from fedguard.contracts import PoisonView, Sight, channels
from fedguard.errors import InputError
from fedguard.guard import attack_at, falsify_claim
from fedguard.rng import Rng
from fedguard.states import Layout


def malicious_mod(attack: str, *, seed: int = 0, weighted_by_key: str = SAMPLES) -> Mod:
    """A mod that sends what an attack makes of the client's own update: `ClientApp(mods=[malicious_mod("sign_flip")])`.

    It does not see the updates of other clients, not even of malicious ones, and it is memoryless, since Flower may start a new
    process for each message. For an adversary that sees more, use `under_attack`, which acts at the Grid.

    Args:
        attack: one that needs only its own data and the model.
        weighted_by_key: the strategy's name for the number of examples, about which an attack may lie.

    Raises:
        NotAllowed: the attack needs more, or acts elsewhere than on the update.
    """
    granted = Sight.OWN_DATA | Sight.MODEL
    built, sees = attack_at(attack, granted)

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not is_training(message) or built is None:
            return call_next(message, context)
        _, sent = arrays_of(message, "the server's message")
        reply = call_next(message, context)
        if not reply.has_content():
            return reply
        # The mod runs after the honest training: the own update is what the client would have sent
        name, arrays = arrays_of(reply, "the client's reply")
        layout = Layout.of(arrays, "the client's reply")
        model = start_of(layout, sent)
        # Only the message knows the round, since the mod remembers nothing; Flower's strategies write it into their config
        told = [
            record["server-round"] for record in message.content.config_records.values() if "server-round" in record
        ]
        number = int(told[0]) if told else 1
        view = PoisonView.of_round(
            built,
            sees,
            round=number,
            malicious=(0,),
            layers=layout.sizes,
            # By node, or all malicious clients would send the same random vector
            rng=Rng(seed).child("attack", number, context.node_id).apart(),
            honest=torch.empty(0, len(model)),
            own=decode_update(layout, model, arrays, "the client's reply")[None],
            model=model,
        )
        crafted = torch.as_tensor(built.craft(view))[0]
        claim = samples_of(reply, weighted_by_key)
        if claim is None and channels.SAMPLES in built.lies:
            raise InputError(
                f"the client's reply: expected a metric {weighted_by_key!r}, the number of examples, about which {built.name} "
                "lies; got none. Name the strategy's own: malicious_mod(..., weighted_by_key=...)."
            )
        claimed = None if claim is None else falsify_claim(built, claim)
        return with_arrays(reply, name, layout.state(model + crafted, arrays), claimed, weighted_by_key)

    return mod
