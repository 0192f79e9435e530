"""Defenses, one file each. A row in this table is all that makes one known.

aggregators/   rules that end a pipeline: weight rules (Gram matrix) and coordinate rules
mixing/        what the server does to the updates before a rule
clients/       what honest clients do to their own update before they send it
"""

CATALOGUE = {
    "mean": "fedguard.defenses.aggregators.mean:Mean",
    "weighted_mean": "fedguard.defenses.aggregators.weighted_mean:WeightedMean",
    "median": "fedguard.defenses.aggregators.median:Median",
    "trimmed_mean": "fedguard.defenses.aggregators.trimmed_mean:TrimmedMean",
    "krum": "fedguard.defenses.aggregators.krum:Krum",
    "multi_krum": "fedguard.defenses.aggregators.multi_krum:MultiKrum",
    "geometric_median": "fedguard.defenses.aggregators.geometric_median:GeometricMedian",
    "centered_clipping": "fedguard.defenses.aggregators.centered_clipping:CenteredClipping",
    "fltrust": "fedguard.defenses.aggregators.fltrust:FLTrust",
    "nnm": "fedguard.defenses.mixing.nnm:NNM",
    "bucketing": "fedguard.defenses.mixing.bucketing:Bucketing",
    "clip": "fedguard.defenses.mixing.clip:Clip",
    "client_clipping": "fedguard.defenses.clients.client_clipping:ClientClipping",
}
