"""The server: rounds of secure sums. It writes down all that it sees, and tells what came of each."""

import json
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.serverapp import Grid, ServerApp

from fedguard.flower.secagg import BYTES, KIND, RECORD, REFUSED, secagg_sum
from fedguard.secagg.server import ProtocolServer
from sums.client_app import CONFIG, MODEL, roster

app = ServerApp()


class Wire:
    """A Grid that keeps the bytes of all messages."""

    def __init__(self, grid, file):
        self._grid, self._file = grid, file

    def send_and_receive(self, messages, *, timeout=None):
        sent = list(messages)
        replies = list(self._grid.send_and_receive(sent, timeout=timeout))
        for one in (*sent, *replies):
            data = message_to_proto(one).SerializeToString()
            self._file.write(len(data).to_bytes(4, "little") + data)
        return replies


@app.main()
def main(grid: Grid, context: Context) -> None:
    place, told = Path(context.run_config["place"]), {"rounds": []}
    nodes = json.loads((place / "nodes.json").read_text())
    try:
        with (place / "wire").open("wb") as file:
            wire = Wire(grid, file)
            for round in range(1, int(context.run_config["rounds"]) + 1):
                server = ProtocolServer(CONFIG, roster(place), round=round, model_hash=MODEL)
                said = secagg_sum(wire, nodes, server)
                found = {"total": server.total.tolist(), "included": sorted(server.included), "said": said}
                told["rounds"].append(found)
            if context.run_config["twice"]:
                told["twice"] = twice(wire, nodes[0], roster(place))
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        (place / "told.new").write_text(json.dumps(told))
        (place / "told.new").rename(place / "told.json")


def twice(grid, node, everybody):
    """A server that cheats: it asks a node twice at once to begin a round, and once more for one that is over."""
    asked = [ProtocolServer(CONFIG, everybody, round=9, model_hash=MODEL).hello() for _ in range(2)]
    asked.append(ProtocolServer(CONFIG, everybody, round=1, model_hash=MODEL).hello())
    records = [RecordDict({RECORD: ConfigRecord({BYTES: data})}) for data in asked]
    replies = grid.send_and_receive([Message(record, node, KIND) for record in records])
    found = [one.content.config_records[RECORD] for one in replies]
    return sorted("answered" if BYTES in one else str(one[REFUSED]) for one in found)
