"""The client of `with_flower.py`: a plain loop, with its data and its module kept between rounds."""

from __future__ import annotations

from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy
from work import Task, load

app = ClientApp()


@lru_cache(1)
def task_of(path: str) -> Task:
    return load(path)


@app.train()
def train(message: Message, context: Context) -> Message:
    task, client = task_of(message.content["config"]["task"]), int(context.node_config["partition-id"])
    task.module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(task.module.parameters(), lr=task.lr)
    x, y = task.x[client], task.y[client]
    for batch in torch.randperm(len(y)).split(task.batch):
        optimizer.zero_grad()
        cross_entropy(task.module(x[batch]), y[batch]).backward()
        optimizer.step()
    content = {"arrays": ArrayRecord(task.module.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(RecordDict(content), reply_to=message)
