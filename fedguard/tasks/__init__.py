"""What is learned, and how many clients are trained at once.

data/            data sets, one file each
partitions/      ways to deal the examples out to clients
models/          families of networks
classification.py  the task that joins the three
environments/    where actors act, one file each
playing.py       the task of actors in an environment
policies.py      what an actor does, given the outputs of its network
cohort.py        trains all clients of a round at once
network.py       a network with its parameters in one flat vector
statistics.py    its running statistics in another, if it normalizes over batches
tokens.py        whether a network of texts leaves their padding out
shadows.py       shadow models, for attacks on privacy
first_model.py   the parameters that a training starts from, if a suite names a file
compute.py       where it computes, on the processor or on a CUDA device, and in which type
engines/         the ways cohort.py does so: engines/dense.py for MLPs, engines/module.py for any other network
"""

DATA = {
    "digits": "fedguard.tasks.data.digits:Digits",
    "breast_cancer": "fedguard.tasks.data.breast_cancer:BreastCancer",
    "wine": "fedguard.tasks.data.wine:Wine",
    "synthetic": "fedguard.tasks.data.synthetic:Synthetic",
    "python_topics": "fedguard.tasks.data.python_topics:PythonTopics",
    "openml": "fedguard.tasks.data.openml:OpenML",
    "idx": "fedguard.tasks.data.idx:IDX",
    "fashion_mnist": "fedguard.tasks.data.fashion_mnist:FashionMNIST",
    "mnist_5k": "fedguard.tasks.data.mnist_5k:MNIST5k",
    "shakespeare_roles": "fedguard.tasks.data.shakespeare_roles:ShakespeareRoles",
    "npz": "fedguard.tasks.data.npz:NPZ",
    "image_folder": "fedguard.tasks.data.image_folder:ImageFolder",
    "text_table": "fedguard.tasks.data.text_table:TextTable",
    "table": "fedguard.tasks.data.table:Table",
    "hugging_face": "fedguard.tasks.data.hugging_face:HuggingFace",
    "leaf": "fedguard.tasks.data.leaf:LEAF",
    "text": "fedguard.tasks.data.text:Text",
    "function": "fedguard.tasks.data.function:Function",
    "cartpole": "fedguard.tasks.environments.cartpole:CartPole",
    "masked_cartpole": "fedguard.tasks.environments.masked_cartpole:MaskedCartPole",
    "pendulum": "fedguard.tasks.environments.pendulum:Pendulum",
    "gymnasium": "fedguard.tasks.environments.gymnasium:Gymnasium",
    "environment": "fedguard.tasks.environments.own:CustomEnvironment",
}

PARTITIONS = {
    "iid": "fedguard.tasks.partitions.iid:IID",
    "dirichlet": "fedguard.tasks.partitions.dirichlet:Dirichlet",
    "inner_dirichlet": "fedguard.tasks.partitions.inner_dirichlet:InnerDirichlet",
    "pathological": "fedguard.tasks.partitions.pathological:Pathological",
    "label_sorted": "fedguard.tasks.partitions.label_sorted:LabelShards",
    "label_sets": "fedguard.tasks.partitions.label_sets:LabelSets",
    "label_ordered": "fedguard.tasks.partitions.label_ordered:LabelOrder",
    "rare_class": "fedguard.tasks.partitions.rare_class:RareClass",
    "quantity_skew": "fedguard.tasks.partitions.quantity_skew:QuantitySkew",
    "feature_skew": "fedguard.tasks.partitions.feature_skew:FeatureSkew",
    "gamma_similarity": "fedguard.tasks.partitions.gamma_similarity:GammaSimilarity",
    "natural": "fedguard.tasks.partitions.natural:NaturalPartition",
}

MODELS = {
    "softmax": "fedguard.tasks.models.softmax:Softmax",
    "svm": "fedguard.tasks.models.svm:SVM",
    "mlp": "fedguard.tasks.models.mlp:MLP",
    "towers": "fedguard.tasks.models.towers:Towers",
    "gru": "fedguard.tasks.models.gru:GRU",
    "rssm": "fedguard.tasks.models.rssm:RSSM",
    "lenet5": "fedguard.tasks.models.lenet5:LeNet5",
    "fedavg_cnn": "fedguard.tasks.models.fedavg_cnn:FedAvgCNN",
    "resnet8": "fedguard.tasks.models.resnet8:ResNet8",
    "resnet20": "fedguard.tasks.models.resnet20:ResNet20",
    "transformer": "fedguard.tasks.models.transformer:Transformer",
    "precode": "fedguard.tasks.models.precode:PRECODE",
    "module": "fedguard.tasks.models.module:Module",
}
