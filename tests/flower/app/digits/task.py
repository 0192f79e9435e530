"""What is learned: softmax regression on a node's share of the digits."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        return self.linear(x)


def load_data(partition_id, num_partitions):
    """A share of the digits, dealt by a fixed order: four parts in five to train on, the rest to test."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(7))[partition_id::num_partitions]
    x, y = torch.tensor(data.data, dtype=torch.float32)[order] / 16, torch.tensor(data.target)[order]
    cut = len(order) * 4 // 5
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def train(net, data, epochs, lr, batch_size):
    x, y = data
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(batch_size):
            optimizer.zero_grad()
            loss = cross_entropy(net(x[part]), y[part])
            loss.backward()
            optimizer.step()
    return loss.item()


@torch.no_grad()
def test(net, data):
    x, y = data
    logits = net(x)
    return float(cross_entropy(logits, y)), float((logits.argmax(1) == y).float().mean())
