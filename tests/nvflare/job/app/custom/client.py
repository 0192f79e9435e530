"""A site: softmax regression on its share of the digits, by steps of gradient descent on all of its examples."""

import argparse
import os

import numpy as np

#: How many examples each site holds; the others are nobody's, and test the model.
SHARES = (620, 280, 174, 87, 31, 7)


def load(site):
    """Inputs and labels of a site, from 0, and of the test."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(x))
    x, y = x[order] / 16.0, y[order]
    starts = np.cumsum((0, *SHARES))
    part = slice(starts[site], starts[site + 1])
    return (x[part], y[part]), (x[starts[-1] :], y[starts[-1] :])


def probabilities(model, x):
    scores = x @ model[:64] + model[64]
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def accuracy(model, x, y):
    return float((probabilities(model, x).argmax(1) == y).mean())


def train(model, x, y, lr=0.5, steps=5):
    """The model, float32 [65, 10], after some steps."""
    model = model.astype(np.float64)
    for _ in range(steps):
        wrong = probabilities(model, x)
        wrong[np.arange(len(y)), y] -= 1
        model = model - lr * np.concatenate([x.T @ wrong, wrong.sum(0, keepdims=True)]) / len(y)
    return model.astype(np.float32)


def main():
    import nvflare.client as flare

    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--dies", help="SITE:ROUND, from 1, in which its process ends")
    args = parser.parse_args()
    flare.init()
    site = flare.get_site_name()
    (x, y), test = load(int(site.split("-")[1]) - 1)
    while flare.is_running():
        received = flare.receive()
        if args.dies == f"{site}:{received.current_round + 1}":
            os._exit(1)
        model = np.asarray(received.params["numpy_key"], dtype=np.float32)
        flare.send(
            flare.FLModel(
                params={"numpy_key": train(model, x, y, args.lr)},
                metrics={"accuracy": accuracy(model, *test)},
                meta={"NUM_STEPS_CURRENT_ROUND": len(x)},
            )
        )


if __name__ == "__main__":
    main()
