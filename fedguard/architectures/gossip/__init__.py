"""Training without a server: each node has its own model, receives from its neighbors, and aggregates for itself.

`gossip` is the common base, `nodes` the interface that algorithms use; each algorithm is a file that reads like its paper.
"""

GOSSIP = {
    "d_psgd": "fedguard.architectures.gossip.d_psgd:DecentralizedSGD",
    "sgp": "fedguard.architectures.gossip.sgp:StochasticGradientPush",
    "d2": "fedguard.architectures.gossip.d2:D2",
    "dsgt": "fedguard.architectures.gossip.dsgt:GradientTracking",
    "detag": "fedguard.architectures.gossip.detag:DeTAG",
    "defacto": "fedguard.architectures.gossip.defacto:DeFacto",
    "ako": "fedguard.architectures.gossip.ako:Ako",
    "wide_area": "fedguard.architectures.gossip.wide_area:WideArea",
    "dlion": "fedguard.architectures.gossip.dlion:DLion",
    "lone": "fedguard.architectures.gossip.isolated:IsolatedTraining",
}
