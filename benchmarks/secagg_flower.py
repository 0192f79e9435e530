"""Flower's own SecAgg+ functions, timed when asked: `secagg.py` runs this in an interpreter that has flwr (1.41).

The first line that comes in tells the sizes, each later one names a job; each answer is one line of JSON. Sizes as Flower
has them by default: clipping range 8, quantization range 2^22, modulus 2^32.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import (
    SecAggPlusState,
    _collect_masked_vectors,
    _setup,
    _share_keys,
    _unmask,
)
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.compat.common import recorddict_compat as compat
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import SecAggPlusWorkflow, WorkflowState
from flwr.supercore.task_identity import TaskIdentity

CLIP, TARGET, MODULUS, WEIGHT = 8.0, 1 << 22, 1 << 32, 1000


class Round:
    """One round among ``n`` clients with ids 1 ... n, all of them neighbors; the first ``dropped`` send no masked input."""

    def __init__(self, n: int, threshold: int, d: int, dropped: int) -> None:
        self.threshold, self.ids, self.late = threshold, range(1, n + 1), range(1, dropped + 1)
        self.inputs = {i: np.random.default_rng(i).standard_normal(d, np.float32) for i in self.ids}
        self.states = {i: SecAggPlusState(nid=i) for i in self.ids}
        self._advertise()
        self._share()
        alive = [i for i in self.ids if i not in self.late]
        self.masked = {i: self.mask(i) for i in alive}
        request = {Key.ACTIVE_NODE_ID_LIST: alive, Key.DEAD_NODE_ID_LIST: list(self.late)}
        self.revealed = {i: _unmask(self.states[i], request) for i in alive}

    def _advertise(self) -> None:
        """Stage "setup"."""
        setup = {
            Key.SAMPLE_NUMBER: len(self.ids),
            Key.SHARE_NUMBER: len(self.ids),
            Key.THRESHOLD: self.threshold,
            Key.CLIPPING_RANGE: CLIP,
            Key.TARGET_RANGE: TARGET,
            Key.MOD_RANGE: MODULUS,
            Key.MAX_WEIGHT: WEIGHT,
        }
        self.keys = {i: list(_setup(state, setup).values()) for i, state in self.states.items()}

    def _share(self) -> None:
        """Stage "share keys", and what the server forwards."""
        public = {str(i): pair for i, pair in self.keys.items()}
        self.dealt = {i: _share_keys(state, public) for i, state in self.states.items()}
        self.sources: dict[int, list[int]] = {i: [] for i in self.ids}
        self.ciphers: dict[int, list[bytes]] = {i: [] for i in self.ids}
        for source, dealt in self.dealt.items():
            for target, cipher in zip(dealt[Key.DESTINATION_LIST], dealt[Key.CIPHERTEXT_LIST], strict=True):
                self.sources[target].append(source)
                self.ciphers[target].append(cipher)

    def mask(self, i: int) -> dict[str, list[bytes]]:
        """Stage "collect masked vectors" on the client: the whole of it."""
        forwarded = {Key.CIPHERTEXT_LIST: self.ciphers[i], Key.SOURCE_LIST: self.sources[i]}
        parameters = ndarrays_to_parameters([self.inputs[i]])
        return _collect_masked_vectors(self.states[i], forwarded, WEIGHT, parameters)

    def sent(self) -> int:
        """Bytes of keys, shares, masked vector and revealed shares of one client; ids and framing are not counted."""
        last = self.ids[-1]
        parts = (*self.keys[last], *self.dealt[last][Key.CIPHERTEXT_LIST])
        return sum(map(len, (*parts, *self.masked[last][Key.MASKED_PARAMETERS], *self.revealed[last][Key.SHARE_LIST])))


class Server:
    """Flower's workflow, from the forwarding of the shares to the sum; every client's answer is there already."""

    def __init__(self, round: Round) -> None:
        self.round, self.result = round, np.zeros(0)
        self.context = SimpleNamespace(
            state=SimpleNamespace(config_records={MAIN_CONFIGS_RECORD: {WorkflowKey.CURRENT_ROUND: 1}}),
            strategy=self,
        )

    def prepare(self) -> None:
        """The state after the stages "setup" and "share keys"."""
        ids, n = self.round.ids, len(self.round.ids)
        self.workflow = SecAggPlusWorkflow(n, self.round.threshold)
        self.state = WorkflowState(
            nid_to_proxies=dict.fromkeys(ids),
            nid_to_fitins={i: RecordDict() for i in ids},
            sampled_node_ids=set(ids),
            active_node_ids=set(ids),
            num_shares=n,
            threshold=self.round.threshold,
            clipping_range=CLIP,
            quantization_range=TARGET,
            mod_range=MODULUS,
            max_weight=WEIGHT,
            nid_to_neighbours={i: set(ids) for i in ids},
            nid_to_publickeys=self.round.keys,
            forward_srcs=self.round.sources,
            forward_ciphertexts=self.round.ciphers,
        )
        self.contents = iter([self._contents(answers) for answers in (self.round.masked, self.round.revealed)])

    def run(self) -> None:
        """Stages "collect masked vectors" and "unmask" of the workflow."""
        assert self.workflow.collect_masked_vectors_stage(self, self.context, self.state)
        assert self.workflow.unmask_stage(self, self.context, self.state)

    def check(self) -> None:
        """The result is the mean of those who did not drop out."""
        mean = np.mean([self.round.inputs[i] for i in self.round.masked], axis=0)
        assert np.abs(self.result - mean).max() < 1e-5

    def _contents(self, answers: dict[int, dict[str, list[bytes]]]) -> dict[int, RecordDict]:
        """The answers as the client's modifier sends them, with the metrics of a fit and without its parameters."""
        contents = {}
        for i, answer in answers.items():
            fit = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([]), WEIGHT, {})
            contents[i] = compat.fitres_to_recorddict(fit, keep_input=False)
            contents[i].config_records[RECORD_KEY_CONFIGS] = ConfigRecord(dict(answer), False)
        return contents

    # What the workflow calls: the grid and the strategy.

    def send_and_receive(self, requests: Iterable[Message], timeout: float | None) -> list[Message]:
        contents = next(self.contents)
        asked = {request.metadata.dst_node_id: request for request in requests}
        return [Message(content, reply_to=asked[i]) for i, content in contents.items()]

    def aggregate_fit(self, number: int, results: list[tuple[None, FitRes]], failures: list[Exception]) -> tuple:
        assert not failures
        self.result = parameters_to_ndarrays(results[0][1].parameters)[0]
        return None, {}


def masked_vector(quantized: list[np.ndarray], seeds: list[bytes]) -> list[np.ndarray]:
    """The part of the client's stage that masks: the private mask and one with each neighbor, half of them added."""
    shapes = [array.shape for array in quantized]
    vector = arithmetic.parameters_addition(quantized, pseudo_rand_gen(seeds[0], MODULUS, shapes))
    for number, seed in enumerate(seeds[1:]):
        mask = pseudo_rand_gen(seed, MODULUS, shapes)
        combine = arithmetic.parameters_addition if number % 2 else arithmetic.parameters_subtraction
        vector = combine(vector, mask)
    return arithmetic.parameters_mod(vector, MODULUS)


def jobs(n: int, threshold: int, d: int, dropped: int) -> tuple[Round, Server, dict[str, Callable[[], object]]]:
    """What can be timed. The server's masks: one of each survivor, and n - 1 of each dropout, as its workflow does."""
    round = Round(n, threshold, d, dropped)
    server, last = Server(round), round.states[n]
    quantized = [np.array([TARGET]), np.random.default_rng(0).integers(0, TARGET, d, np.int32)]
    total = [array.astype(np.int64) for array in quantized]
    removed = [os.urandom(32) for _ in range(n - dropped + dropped * (n - 1))]
    return (
        round,
        server,
        {
            "masks": lambda: masked_vector(quantized, removed[:n]),  # the arithmetic of `_collect_masked_vectors`
            "client": lambda: round.mask(n),  # `_collect_masked_vectors`, whole
            "shares": lambda: [create_shares(secret, threshold, n) for secret in (last.rd_seed, last.sk1)],
            "removal": lambda: masked_vector(total, removed),  # the arithmetic of `unmask_stage`, all seeds known
            "server": server.run,  # `collect_masked_vectors_stage` and `unmask_stage`, whole
        },
    )


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # or no message can be made
    round, server, known = jobs(**json.loads(sys.stdin.readline()))
    print(json.dumps({"bytes": round.sent()}), flush=True)
    for line in sys.stdin:
        server.prepare()
        begun = time.process_time()
        known[json.loads(line)]()
        seconds = time.process_time() - begun
        if server.result.size:
            server.check()
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
