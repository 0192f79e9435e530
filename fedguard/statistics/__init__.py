"""What becomes of the running statistics of a network that normalizes over batches, one file each.

What they are is in `fedguard.contracts.statistics`; `fedguard.architectures.statistics` keeps them from round to round.
"""

FATES = {
    "weighted": "fedguard.statistics.weighted:Weighted",
    "average": "fedguard.statistics.average:Average",
    "pooled": "fedguard.statistics.pooled:Pooled",
    "recomputed": "fedguard.statistics.recomputed:Recomputed",
    "local": "fedguard.statistics.local:Local",
    "hidden": "fedguard.statistics.hidden:Hidden",
    "initial": "fedguard.statistics.initial:Initial",
    "frozen": "fedguard.statistics.frozen:Frozen",
}
