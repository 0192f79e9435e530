"""Graphs from files: the weights that they have or get, and one line for each bad one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedguard.bench.running.code import code_of
from fedguard.errors import ConfigError
from fedguard.simulated.topology import topology
from tests.systems.scenes import cell, models, reports

RING = "node,neighbor\n" + "".join(f"{i},{(i + step) % 6}\n" for i in range(6) for step in (1, -1))


def written(tmp_path, text: str) -> str:
    file = tmp_path / "graph.csv"
    file.write_text(text)
    return str(file)


def test_links_in_both_directions_have_the_weights_of_the_graph_of_that_name(tmp_path):
    file = written(tmp_path, RING)
    assert np.array_equal(topology("file", 6, file=file).at(0), topology("ring", 6).at(0))
    ours = models({"name": "d_psgd", "graph": "file", "file": file})
    assert torch.equal(ours, models({"name": "d_psgd", "graph": "ring"}))


def test_links_of_one_direction_weigh_equally(tmp_path):
    file = written(tmp_path, "node,neighbor\n" + "".join(f"{i},{(i - 1) % 6}\n" for i in range(6)))
    assert np.array_equal(topology("file", 6, file=file).at(0), topology("directed_ring", 6).at(0))


def test_the_header_of_an_earlier_version_is_read(tmp_path):
    for header, row in (("node,neighbor", "0,1"), ("node,neighbor,weight", "0,1,0.5")):
        text = f"{header}\n{row}\n" + row.replace("0,1", "1,0", 1) + "\n"
        now, before = (
            topology("file", 2, file=written(tmp_path, one)) for one in (text, text.replace("neighbor", "hears"))
        )
        assert np.array_equal(now.at(0), before.at(0))


def test_weights_are_taken_as_they_are_and_what_is_missing_is_the_nodes_own(tmp_path):
    found = topology("file", 3, file=written(tmp_path, "node,neighbor,weight\n0,1,0.25\n1,2,0.5\n1,1,0.5\n2,0,1\n"))
    assert found.at(0).tolist() == [[0.75, 0.25, 0], [0, 0.5, 0.5], [1, 0, 0]]
    assert found.rows_add_up and not found.columns_add_up
    (reason,) = cell(
        {
            "name": "d_psgd",
            "graph": "file",
            "file": written(tmp_path, "node,neighbor,weight\n0,1,0.25\n1,2,0.5\n2,0,1\n"),
        },
        clients={"total": 3},
    ).verdict.reasons
    assert "needs weights whose rows and columns add up to 1, and those of file do not. Use sgp" in reason


BAD = {
    "neighbor,node\n0,1\n": "row 1: expected the header node,neighbor or node,neighbor,weight; got 'neighbor,node'. Write it so",
    "": "row 1: expected the header",
    "node,neighbor\n0,1\n1\n": "row 3: expected node,neighbor; got '1'. Give 2 values",
    "node,neighbor\n0,6\n": "row 2: expected the number of one of 6 nodes, from 0 to 5; got '6'. Number them, or set clients.total",
    "node,neighbor\n0,-1\n": "row 2: expected the number of one of 6 nodes",
    "node,neighbor\n0,x\n": "row 2: expected the number of one of 6 nodes",
    "node,neighbor\n0,0\n": "row 2: node 0 receives from itself, which needs no link. Drop the row",
    "node,neighbor\n0,1\n0,1\n": "row 3: node 0 receives from node 1 a second time. Drop one of both",
    "node,neighbor\n0,1\n": "nothing that node 0 sends ever comes to node 1. Add links that lead there",
    "node,neighbor\n" + "".join(f"{i},0\n" for i in range(1, 6)): "nothing that node 1 sends ever comes to node 0",
    "node,neighbor,weight\n0,1,-0.1\n": "row 2: expected a weight in [0, 1]; got '-0.1'. Write a number such as 0.25",
    "node,neighbor,weight\n0,1,nan\n": "expected a weight in [0, 1]",
    "node,neighbor,weight\n0,1,much\n": "expected a weight in [0, 1]",
    "node,neighbor,weight\n0,1,0.6\n0,2,0.6\n": "the weights of node 0 add up to 1.2, and not to 1. Correct them",
    "node,neighbor,weight\n0,1,0.5\n0,0,0.4\n": "the weights of node 0 add up to 0.9, and not to 1",
    "node,neighbor\n\x00,1\n": "expected the number of one of 6 nodes",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_is_one_line(tmp_path, text):
    made = cell({"name": "d_psgd", "graph": "file", "file": written(tmp_path, text)})
    (reason,) = made.verdict.reasons
    assert BAD[text] in reason and str(tmp_path) in reason and "\n" not in reason


def test_a_file_that_is_none(tmp_path):
    (reason,) = cell({"name": "d_psgd", "graph": "file", "file": str(tmp_path / "no.csv")}).verdict.reasons
    assert "no such file. Paths are relative to where" in reason
    with pytest.raises(ConfigError, match="cannot be read"):
        (tmp_path / "graph.csv").write_bytes(b"\xff\xfe\x00")
        topology("file", 6, file=str(tmp_path / "graph.csv"))


def test_a_graph_that_changed_is_other_code(tmp_path):
    file = written(tmp_path, RING)
    made = cell({"name": "d_psgd", "graph": "file", "file": file})
    before = code_of(made)["architecture"]
    written(tmp_path, RING + "0,3\n3,0\n")
    assert code_of(made)["architecture"] != before
    assert "architecture" not in code_of(cell("d_psgd"))
    assert "file" not in cell("d_psgd").canonical["architecture"]


@pytest.mark.parametrize("system", ["d_psgd", "sgp", "d2", "dsgt", "detag", "defacto"])
def test_all_ways_of_gossip_run_over_it(tmp_path, system):
    file = written(tmp_path, RING)
    *_, last = reports({"name": system, "graph": "file", "file": file, "weight": 0.5}, training={"rounds": 2})
    assert len(last.nodes.links) == 12
