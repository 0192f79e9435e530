"""What a node does."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits.task import Net, load_data, test, train

app = ClientApp()


@app.train()
def train_here(msg: Message, context: Context):
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    data, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    config = context.run_config
    loss = train(net, data, config["local-epochs"], config["lr"], config["batch-size"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data[0])})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate_here(msg: Message, context: Context):
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss, accuracy = test(net, data)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(data[0])})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
