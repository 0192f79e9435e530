"""A malicious client in a Flower app: a mod, which sees its own update alone."""

from __future__ import annotations

import torch
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedguard.contracts import PoisonView, Sight
from fedguard.flower.records import arrays_of, is_training, moved, samples_of, with_arrays
from fedguard.guard import attack_at
from fedguard.rng import Rng
from fedguard.states import Layout


def malicious_mod(attack: str, *, seed: int = 0) -> Mod:
    """A mod that sends what an attack makes of the client's own update: `ClientApp(mods=[malicious_mod("sign_flip")])`.

    Other clients' updates, even other malicious ones', are beyond its sight, and it remembers nothing: Flower may start a new
    process for each message. Whoever is to see more stands at the Grid: `under_attack`.

    Args:
        attack: one that needs no more than its own data and the model.

    Raises:
        NotAllowed: it needs more, or acts elsewhere than on the update.
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
        name, arrays = arrays_of(reply, "the client's reply")
        layout = Layout.of(sent, "the model that was sent")
        model = layout.vector(sent)
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
            rng=Rng(seed).child("attack", number, context.node_id).apart(),
            honest=torch.empty(0, len(model)),
            own=moved(layout, model, arrays, "the client's reply")[None],
            model=model,
        )
        crafted = torch.as_tensor(built.craft(view))[0]
        claim = samples_of(reply)
        claimed = None if claim is None else float(built.claim(max(1, round(claim))))
        return with_arrays(reply, name, layout.state(model + crafted, arrays), claimed)

    return mod
