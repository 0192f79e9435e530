"""A malicious site in an NVFlare job of one's own: a filter of its client, which sees its own update alone."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.filter import FilterChainType, FilterContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from fedguard.contracts import PoisonView, Sight
from fedguard.guard import attack_at, falsify_claim
from fedguard.rng import Rng
from fedguard.states import Layout


class LyingFilter(DXOFilter):  # type: ignore[misc]
    """Sends what an attack makes of a site's own update: a filter of its task's data and of its result, both.

    ``recipe.add_client_input_filter(LyingFilter("sign_flip", sites=["site-1"]), tasks=["train"])``, and the same with
    ``add_client_output_filter``. On a task's data it remembers the model that came; on the result it replaces the update. It
    sees no update of another site, and is memoryless.

    Args:
        attack: one that needs only its own data and the model.
        sites: names of the sites that lie; by default all of the app that has the filter.
        seed: seed of the attack's draws.

    Raises:
        NotAllowed: the attack needs more, or acts elsewhere than on the update.
    """

    #: By site, the model that came last: NVFlare builds one filter for the data and one for the result.
    _models: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, attack: str, sites: list[str] | None = None, seed: int = 0) -> None:
        kinds = [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF]
        super().__init__(supported_data_kinds=kinds, data_kinds_to_filter=kinds)
        self.attack, self.sites, self.seed = attack, sites, seed
        self._built, self._sees = attack_at(attack, Sight.OWN_DATA | Sight.MODEL)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        """Remember a task's model, or replace a result's update; None leaves it as it is."""
        site = str(fl_ctx.get_identity_name())
        if self.sites is not None and site not in self.sites:
            return None
        if self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_DATA_CHAIN:
            self._models[site] = {name: np.array(value) for name, value in dxo.data.items()}
            return None
        if self._built is None or site not in self._models:
            return None
        number = int(shareable.get_header(AppConstants.CURRENT_ROUND) or 0) + 1
        dxo.data = self._lie(dxo.data, self._models[site], dxo.data_kind == DataKind.WEIGHTS, number, site)
        claim = dxo.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND)
        if claim is not None:
            dxo.set_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, falsify_claim(self._built, float(claim)))
        return dxo

    def _lie(self, arrays: dict[str, Any], sent: dict[str, Any], full: bool, number: int, site: str) -> dict[str, Any]:
        layout = Layout.of(arrays, f"the result of {site}")
        model = layout.vector(sent, "the model that came", averaged=True)
        own = layout.vector(arrays, f"the result of {site}") - (model if full else 0)
        assert self._built is not None
        view = PoisonView.of_round(
            self._built,
            self._sees,
            round=number,
            malicious=(0,),
            layers=layout.sizes,
            # By site, or all malicious sites would send the same random vector
            rng=Rng(self.seed).child("attack", number, site).apart(),
            honest=torch.empty(0, len(model)),
            own=own[None],
            model=model,
        )
        crafted = torch.as_tensor(self._built.craft(view))[0]
        return layout.state(model + crafted if full else crafted, arrays)
