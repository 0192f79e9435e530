"""What is learned, and how many clients are trained at once.

data/            data sets, one file each
partitions/      ways to deal the examples out to clients
models/          families of networks
classification.py  the task that joins the three
cohort.py        trains all clients of a round at once
engines/         the ways cohort.py does so: dense.py for MLPs, module.py for any other network
"""

DATA = {
    "digits": "fedguard.tasks.data.digits:Digits",
    "breast_cancer": "fedguard.tasks.data.breast_cancer:BreastCancer",
    "wine": "fedguard.tasks.data.wine:Wine",
}

PARTITIONS = {
    "iid": "fedguard.tasks.partitions.iid:IID",
    "dirichlet": "fedguard.tasks.partitions.dirichlet:Dirichlet",
    "label_sorted": "fedguard.tasks.partitions.label_sorted:LabelSorted",
    "rare_class": "fedguard.tasks.partitions.rare_class:RareClass",
}

MODELS = {
    "softmax": "fedguard.tasks.models.softmax:Softmax",
    "mlp": "fedguard.tasks.models.mlp:MLP",
    "lenet5": "fedguard.tasks.models.lenet5:LeNet5",
    "fedavg_cnn": "fedguard.tasks.models.fedavg_cnn:FedAvgCNN",
    "precode": "fedguard.tasks.models.precode:PRECODE",
}
