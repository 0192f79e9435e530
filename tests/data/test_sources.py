"""Data that are no files: OpenML over HTTP, the synthetic draws, text, and a function of the user's own."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from sklearn.datasets import _openml

from fedguard.contracts import Dataset, Examples
from fedguard.contracts.specs import split_spec
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.data.dataset_checks import check_dataset

KNOWN = load_registry()


def load(name, **given):
    return KNOWN.build("data", {"name": name, **given}).load()


# OpenML: the real fetch, against a server on this machine that speaks its API.

PIXELS = np.random.default_rng(0).integers(256, size=(60, 4))
ARFF = (
    "@relation tiny\n"
    + "".join(f"@attribute pixel{j} numeric\n" for j in range(4))
    + "@attribute class {a,b,c}\n@data\n"
    + "".join(f"{','.join(map(str, row))},{'abc'[i % 3]}\n" for i, row in enumerate(PIXELS))
)


class API(BaseHTTPRequestHandler):
    def do_GET(self):
        features = [
            {"index": str(j), "name": name, "data_type": kind, "is_target": target, "is_ignore": "false",
             "is_row_identifier": "false", "number_of_missing_values": "0"}
            for j, (name, kind, target) in enumerate(
                [(f"pixel{j}", "numeric", "false") for j in range(4)] + [("class", "nominal", "true")]
            )
        ]  # fmt: skip
        found = {"did": 7, "name": "tiny", "version": 1, "status": "active", "format": "ARFF"}
        checksum = hashlib.md5(ARFF.encode()).hexdigest()
        told = {
            "/api/v1/json/data/list/data_name/tiny/limit/2/data_version/1": {"data": {"dataset": [found]}},
            "/api/v1/json/data/7": {
                "data_set_description": {
                    **{key: str(value) for key, value in found.items()},
                    "id": "7",
                    "file_id": "70",
                    "url": f"{self.server.url}/data/v1/download/70/tiny.arff",
                    "md5_checksum": checksum,
                    "description": "four pixels",
                }
            },
            "/api/v1/json/data/features/7": {"data_features": {"feature": features}},
            "/api/v1/json/data/qualities/7": {
                "data_qualities": {"quality": [{"name": "NumberOfInstances", "value": "60"}]}
            },
        }
        path = self.path.split("?")[0]
        self.server.asked.append(path)
        if path in told:
            self._answer(200, json.dumps(told[path]).encode())
        elif path.startswith("/data/v1/download/"):
            self._answer(200, ARFF.encode())
        else:
            self._answer(412, b'{"error": {"code": "372", "message": "No results"}}')

    def _answer(self, status, content):
        content = gzip.compress(content)
        self.send_response(status)
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


@pytest.fixture
def openml(tmp_path, monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), API)
    server.url, server.asked = f"http://127.0.0.1:{server.server_port}", []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    for name in ("_SEARCH_NAME", "_DATA_INFO", "_DATA_FEATURES", "_DATA_QUALITIES"):
        monkeypatch.setattr(_openml, name, getattr(_openml, name).replace("https://www.openml.org", server.url))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_openml_gives_pixels_over_255_and_is_fetched_once(openml):
    found = load("openml", dataset="tiny", shape=[1, 2, 2])
    assert (found.shape, found.classes, found.value_range) == ((1, 2, 2), 3, (0.0, 1.0))
    assert (len(found.train), len(found.test)) == (48, 12)
    truth = {tuple(row): i % 3 for i, row in enumerate(PIXELS.tolist())}
    for part in (found.train, found.test):
        for x, y in zip(part.x.flatten(1), part.y.tolist(), strict=True):
            assert truth[tuple((x * 255).round().int().tolist())] == y
    asked = len(openml.asked)
    again = KNOWN.build("data", "openml:tiny").load()
    assert len(openml.asked) == asked
    assert again.train.x.mean(0).abs().max() < 1e-6  # without a shape, columns are standardized


def test_what_openml_does_not_have_is_said(openml):
    with pytest.raises(
        ConfigError, match=r"^openml:nothing: cannot be fetched: .* The network is needed once"
    ) as caught:
        KNOWN.build("data", "openml:nothing").load()
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"shape: expected 4 values for each input; got \[3, 3\]"):
        load("openml", dataset="tiny", shape=[3, 3])


def test_short_specs():
    assert split_spec("data", "openml:mnist_784") == ("openml", {"dataset": "mnist_784"})
    assert split_spec("data", "openml:Fashion-MNIST") == ("openml", {"dataset": "Fashion-MNIST"})
    assert split_spec("data", "mine.data:load") == ("function", {"target": "mine.data:load"})
    assert split_spec("model", "my_nets:build") == ("module", {"target": "my_nets:build"})
    with pytest.raises(ConfigError, match="expected 'name'"):
        split_spec("partition", "mine:load")
    for target in ("mine", "mine:", ":load", "a:b:c", "a b:c", "mine:load()"):
        with pytest.raises(ConfigError, match="target: expected module:function"):
            KNOWN.build("data", {"name": "function", "target": target})


# Synthetic(alpha, beta).


def test_synthetic_labels_are_those_of_each_clients_own_linear_model():
    """Each client's labels can be told without error by one linear model; another client's model does badly."""
    data = KNOWN.build("data", "synthetic(largest=400)")
    x, y = data.client(0)
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=1e6, max_iter=5000).fit(x, y)
    assert fitted.score(x, y) > 0.98
    assert np.mean([fitted.score(*data.client(other)) for other in range(1, 9)]) < 0.5


def test_synthetic_inputs_have_the_moments_of_their_law():
    """Within a client Var x_j = j^-1.2; a client's mean has variance 1 about B_k, and B_k variance beta."""
    data = KNOWN.build("data", "synthetic(alpha=0, beta=4, clients=400, largest=100)")
    parts = [data.client(number)[0] for number in range(400)]
    within = np.mean([part.var(0, ddof=1) for part in parts], axis=0)
    assert within == pytest.approx(np.arange(1, 61) ** -1.2, rel=0.05)
    centers = np.array([part.mean(0) for part in parts])
    level = centers.mean(1)  # B_k, up to the mean of 60 draws of variance 1
    assert (centers - level[:, None]).var() == pytest.approx(1, rel=0.08)
    assert level.var() == pytest.approx(4 + 1 / 60, rel=0.2)
    sizes = np.array([len(KNOWN.build("data", "synthetic(largest=1000000)").client(number)[0]) for number in range(60)])
    assert sizes.min() >= 50 and np.median(sizes) == pytest.approx(50 + np.exp(4), rel=0.5)


def test_alpha_changes_no_label_and_beta_changes_the_inputs():
    """The same number added to all weights and biases shifts all logits alike."""
    base, alpha, beta = (
        KNOWN.build("data", f"synthetic(alpha={a}, beta={b})").client(4) for a, b in ((0, 0), (9, 0), (0, 9))
    )
    assert np.array_equal(base[0], alpha[0]) and np.array_equal(base[1], alpha[1])
    assert (base[0] - beta[0]).std(axis=0) == pytest.approx(np.zeros(60), abs=1e-9)  # a shift of the whole client
    assert abs((base[0] - beta[0]).mean()) > 0.1


def test_synthetic_clients_do_not_depend_on_how_many_there_are():
    few, many = (KNOWN.build("data", f"synthetic(clients={count})") for count in (2, 9))
    assert all(np.array_equal(one, other) for one, other in zip(few.client(1), many.client(1), strict=True))
    found = many.load()
    assert set(found.train.client.tolist()) == set(range(9))
    assert found.value_range[0] <= float(found.train.x.min()) and float(found.train.x.max()) <= found.value_range[1]


# Text.


def test_windows_of_a_text_and_what_follows_them(tmp_path):
    documents = ["abcabcabcabcabcabcab", "short", "bcabcabcabcabcabcabd"]
    file = tmp_path / "a.txt"
    file.write_text("\n\n".join(documents), encoding="utf-8")
    found = load("text", file=str(file), window=3, stride=1)
    expected, owners = [], []
    for client, text in enumerate(documents):
        train = text[: round(0.8 * len(text))]
        expected += [(train[i : i + 3], train[i + 3]) for i in range(len(train) - 3)]
        owners += [client] * (len(train) - 3)
    known = sorted(set("".join(window + after for window, after in expected)))
    assert known == sorted("abcshor") and found.classes == 7 and found.tokens and found.shape == (3,)
    told = [
        ("".join(known[int(code)] for code in x), known[y])
        for x, y in zip(found.train.x, found.train.y.tolist(), strict=True)
    ]
    assert told == expected and found.train.client.tolist() == owners
    # 4 characters of each document are for testing, one window; the last ends in a d that nobody learned of.
    assert ["".join(known[int(code)] for code in x) for x in found.test.x] == ["bca"]


def test_no_test_window_overlaps_with_a_train_one(tmp_path):
    letters = "".join(chr(0x4E00 + i) for i in range(300))  # each character once: windows tell their place
    file = tmp_path / "a.txt"
    file.write_text(letters + letters, encoding="utf-8")
    found = load("text", file=str(file), window=5, stride=2, test=0.25)
    last = max(found.train.x.max(), found.train.y.max())
    assert last == 299
    train_ends = 300 + int(found.train.x[-1, -1]) + 1  # the last train window is in the second half
    test_starts = 300 + int(found.test.x[0, 0])
    assert train_ends < test_starts


def test_texts_that_give_no_windows_are_refused(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("too short")
    with pytest.raises(ConfigError, match="expected text of more than 32 characters at a stretch in both parts"):
        load("text", file=str(file))
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="a.txt: expected a text in UTF-8"):
        load("text", file=str(file))
    with pytest.raises(ConfigError, match="b.txt: no such file"):
        load("text", file=str(tmp_path / "b.txt"))
    with pytest.raises(ConfigError, match="window: expected at least 1"):
        load("text", file=str(file), window=0)


def test_python_topics_are_text_with_natural_clients():
    found = load("python_topics", topics=12, window=16)
    assert found.tokens and found.shape == (16,)
    assert set(found.train.client.tolist()) == set(range(12))
    low, high = found.value_range
    for part in (found.train, found.test):
        assert torch.equal(part.x, part.x.round()) and low <= float(part.x.min()) and float(part.x.max()) <= high
        assert int(part.y.max()) < found.classes == high + 1


# A function of the user's own.


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """``mine(code)`` writes the module ``my_data``."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(code):
        (tmp_path / "my_data.py").write_text(code)
        sys.modules.pop("my_data", None)

    yield write
    sys.modules.pop("my_data", None)


def test_a_function_may_return_arrays_or_a_data_set(mine):
    mine("import numpy as np\ndef load():\n    return np.arange(40.0).reshape(20, 2), np.arange(20) % 2\n")
    found = KNOWN.build("data", "my_data:load").load()
    assert (found.shape, found.classes, len(found.test)) == ((2,), 2, 4)
    mine("def load():\n    return [[1, 2], [3, 4]] * 10, ['no', 'yes'] * 10\n")
    assert KNOWN.build("data", "my_data:load").load().classes == 2
    mine("from tests.data.test_sources import DATASET\ndef load():\n    return DATASET\n")
    sys.modules["tests.data.test_sources"] = sys.modules[__name__]
    assert KNOWN.build("data", "my_data:load").load() is DATASET


DATASET = Dataset(
    Examples(torch.zeros(2, 1), torch.arange(2)), Examples(torch.zeros(2, 1), torch.arange(2)), 2, (0.0, 1.0)
)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1", r"data my_data:load: cannot be found: \S+my_data.py has no 'load'"),
        ("import no_such_module", "data my_data:load: cannot be found: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def load(:", "cannot be found: SyntaxError"),
        ("load = 3", "expected a function; got int"),
        ("def load():\n    raise OSError('disk\\nfull')", "data my_data:load: failed: OSError: disk full."),
        ("import sys\ndef load():\n    sys.exit(0)", "failed: SystemExit: 0."),
        ("import sys\nsys.exit(0)", "cannot be found: SystemExit: 0."),
        ("import torch\ndef load():\n    return torch.ones(4, 2).to_sparse(), [0, 1, 0, 1]", r"expected arrays \(x, y\): x: expected a dense tensor"),
        ("import torch\ndef load():\n    return torch.ones(4, 2).bfloat16(), [0, 1, 0, 1]", r"expected arrays \(x, y\): "),
        ("def load():\n    return 3, 4", r"expected inputs \[N, ...\]; got shape \[\]"),
        ("def load(folder):\n    pass", "failed: TypeError"),
        ("def load():\n    return None", r"expected a Dataset or arrays \(x, y\); got NoneType"),
        ("def load():\n    return [[1], [1, 2]], [0, 1]", "expected arrays"),
        ("def load():\n    return [[1.0]] * 3, [0, 1]", r"expected 3 labels \[N\]; got shape \[2\]"),
    ],
)  # fmt: skip
def test_a_function_that_fails_is_named_in_one_line(mine, code, said):
    mine(code)
    with pytest.raises(ConfigError, match=said) as caught:
        KNOWN.build("data", "my_data:load").load()
    assert "\n" not in str(caught.value)


def test_root_data_and_natural_clients_go_together():
    """The server's examples are drawn first, from all; what is left of each natural client stays together."""
    data, model = KNOWN.build("data", "synthetic(clients=8)"), KNOWN.build("model", "softmax")
    task = Classification.deal(data, model, KNOWN.build("partition", "natural"), 5, Rng(1), root_examples=100)
    assert len(task.root) == 100 and len(task.root.client.unique()) > 4
    owners = [part.client.unique().tolist() for part in task.parts]
    assert all(len(owner) == 1 for owner in owners) and len({owner[0] for owner in owners}) == 5
    taken = {tuple(x.tolist()) for x in task.root.x}
    for part, (owner,) in zip(task.parts, owners, strict=True):
        every = task.dataset.train.x[task.dataset.train.client == owner]
        left = [tuple(x.tolist()) for x in every if tuple(x.tolist()) not in taken]
        assert sorted(left) == sorted(tuple(x.tolist()) for x in part.x)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda x, y: (x.double(), y), "train: expected inputs in float32 and labels in int64; got torch.float64"),
        (lambda x, y: (x, y + 1), "train: expected labels below 2; got 1 to 2"),
        (lambda x, y: (x[:0], y[:0]), "train: expected examples; got none"),
        (lambda x, y: (x / 0, y), "train: expected finite inputs"),
        (lambda x, y: (x[:1], y), r"train: expected inputs of shape \[2, 1\]; got \[1, 1\]"),
    ],
)
def test_a_data_set_that_breaks_its_contract_is_refused(harm, said):
    broken = Dataset(Examples(*harm(DATASET.train.x, DATASET.train.y)), DATASET.test, 2, (0.0, 1.0))
    with pytest.raises(ConfigError, match=f"mine: {said}"):
        check_dataset("mine", broken)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classes": 2.0}, "classes: expected an int, 2 or more; got 2.0"),
        ({"classes": 3}, "expected train examples of each class; class 2 has none"),
        ({"value_range": [0, 1]}, r"value_range: expected a tuple of two finite numbers; got \[0, 1\]"),
        ({"value_range": (0.0, float("nan"))}, "value_range: expected a tuple of two finite numbers"),
        ({"value_range": (0.5, 1.0)}, r"train: expected inputs in the value_range \[0.5, 1\]; got 0 to 0"),
        (
            {"test": (DATASET.test.x, DATASET.test.y)},
            "test: expected fedguard.contracts.Examples of tensors x and y; got tuple",
        ),
        (
            {"train": Examples(DATASET.train.x.numpy(), DATASET.train.y)},
            "train: expected .*; got x of type ndarray and y of type Tensor",
        ),
    ],
)
def test_what_a_data_set_says_of_itself_is_checked(changes, said):
    with pytest.raises(ConfigError, match=f"mine: {said}"):
        check_dataset("mine", dataclasses.replace(DATASET, **changes))


def test_a_byte_order_mark_is_no_character_and_a_null_is_one(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes("ab\0".encode("utf-8-sig") * 1 + b"ab\0" * 99 + b"\n \n" + b"ba\0" * 100)
    found = load("text", file=str(file), window=3, stride=1)
    assert found.classes == 3 and set(found.train.client.tolist()) == {0, 1}
    assert found.train.x[0].tolist() == [1, 2, 0] and int(found.train.y[0]) == 1
    file.write_text("a" * 400)
    with pytest.raises(ConfigError, match="expected at least two different characters; got 'a' alone"):
        load("text", file=str(file))
