"""Attacks, one file each. A row in this table is all that makes one known.

poisoning/   untargeted: on the update, or on the malicious clients' data
backdoor/    a hidden function behind a trigger; triggers/ holds the triggers
outliers/    faults without intent: broken, stale or lazy clients
worst_case   the worst of an ensemble of these
inference/   on the clients' privacy: what a server can tell of their data
protocol/    on secure aggregation itself: malicious servers and clients against real parties
"""

CATALOGUE = {
    "sign_flip": "fedguard.attacks.poisoning.sign_flip:SignFlip",
    "ipm": "fedguard.attacks.poisoning.ipm:IPM",
    "alie": "fedguard.attacks.poisoning.alie:ALIE",
    "min_max": "fedguard.attacks.poisoning.min_max:MinMax",
    "min_sum": "fedguard.attacks.poisoning.min_sum:MinSum",
    "agr_tailored": "fedguard.attacks.poisoning.agr_tailored:AGRTailored",
    "mixed_step": "fedguard.attacks.poisoning.mixed_step:MixedStep",
    "fang": "fedguard.attacks.poisoning.fang:Fang",
    "opt_alie": "fedguard.attacks.poisoning.opt_alie:OptALIE",
    "opt_ipm": "fedguard.attacks.poisoning.opt_ipm:OptIPM",
    "gram_search": "fedguard.attacks.poisoning.gram_search:GramSearch",
    "rop": "fedguard.attacks.poisoning.rop:ROP",
    "hybrid_sparse": "fedguard.attacks.poisoning.hybrid_sparse:HybridSparse",
    "poisoned_fl": "fedguard.attacks.poisoning.poisoned_fl:PoisonedFL",
    "cge_adaptive": "fedguard.attacks.poisoning.cge_adaptive:CGEAdaptive",
    "sign_guard_adaptive": "fedguard.attacks.poisoning.sign_guard_adaptive:SignGuardAdaptive",
    "one_range": "fedguard.attacks.poisoning.one_range:OneRange",
    "held_back": "fedguard.attacks.poisoning.held_back:HeldBack",
    "inflated_samples": "fedguard.attacks.poisoning.inflated_samples:InflatedSamples",
    "early_check_in": "fedguard.attacks.poisoning.early_check_in:EarlyCheckIn",
    "no_show": "fedguard.attacks.poisoning.no_show:NoShow",
    "mimic": "fedguard.attacks.poisoning.mimic:Mimic",
    "gaussian": "fedguard.attacks.poisoning.gaussian:Gaussian",
    "random_update": "fedguard.attacks.poisoning.random_update:RandomUpdate",
    "sybil": "fedguard.attacks.poisoning.sybil:Sybil",
    "label_flip": "fedguard.attacks.poisoning.label_flip:LabelFlip",
    "pairwise_flip": "fedguard.attacks.poisoning.pairwise_flip:PairwiseFlip",
    "dynamic_flip": "fedguard.attacks.poisoning.dynamic_flip:DynamicFlip",
    "feature_collision": "fedguard.attacks.poisoning.feature_collision:FeatureCollision",
    "backdoor": "fedguard.attacks.backdoor.backdoor:Backdoor",
    "model_replacement": "fedguard.attacks.backdoor.model_replacement:ModelReplacement",
    "projected_backdoor": "fedguard.attacks.backdoor.projected_backdoor:ProjectedBackdoor",
    "constrain_and_scale": "fedguard.attacks.backdoor.constrain_and_scale:ConstrainAndScale",
    "alternating_minimization": "fedguard.attacks.backdoor.alternating_minimization:AlternatingMinimization",
    "neurotoxin": "fedguard.attacks.backdoor.neurotoxin:Neurotoxin",
    "a3fl": "fedguard.attacks.backdoor.a3fl:A3FL",
    "iba": "fedguard.attacks.backdoor.iba:IBA",
    "nan": "fedguard.attacks.outliers.nan:NotANumber",
    "infinity": "fedguard.attacks.outliers.infinity:Infinity",
    "zeros": "fedguard.attacks.outliers.zeros:Zeros",
    "huge_value": "fedguard.attacks.outliers.huge_value:HugeValue",
    "unit_error": "fedguard.attacks.outliers.unit_error:UnitError",
    "stale": "fedguard.attacks.outliers.stale:Stale",
    "label_noise": "fedguard.attacks.outliers.label_noise:LabelNoise",
    "dead_pixels": "fedguard.attacks.outliers.dead_pixels:DeadPixels",
    "stuck_sensor": "fedguard.attacks.outliers.stuck_sensor:StuckSensor",
    "gain_drift": "fedguard.attacks.outliers.gain_drift:GainDrift",
    "wrong_normalization": "fedguard.attacks.outliers.wrong_normalization:WrongNormalization",
    "duplicated_client": "fedguard.attacks.outliers.duplicated_client:DuplicatedClient",
    "dropout": "fedguard.attacks.outliers.dropout:Dropout",
    "free_rider": "fedguard.attacks.outliers.free_rider:FreeRider",
    "delta_weights": "fedguard.attacks.outliers.delta_weights:DeltaWeights",
    "worst_case": "fedguard.attacks.worst_case:WorstCase",
}

TRIGGERS = {
    "pixel_patch": "fedguard.attacks.backdoor.triggers.pixel_patch:PixelPatch",
    "blended": "fedguard.attacks.backdoor.triggers.blended:Blended",
    "distributed": "fedguard.attacks.backdoor.triggers.distributed:Distributed",
    "semantic": "fedguard.attacks.backdoor.triggers.semantic:Semantic",
    "edge_case": "fedguard.attacks.backdoor.triggers.edge_case:EdgeCase",
}

#: Attacks on the clients' privacy.
INFERENCE = {
    "dlg": "fedguard.attacks.inference.inversion.dlg:DLG",
    "idlg": "fedguard.attacks.inference.inversion.idlg:IDLG",
    "inverting_gradients": "fedguard.attacks.inference.inversion.inverting_gradients:InvertingGradients",
    "grad_inversion": "fedguard.attacks.inference.inversion.grad_inversion:GradInversion",
    "local_simulation": "fedguard.attacks.inference.inversion.local_simulation:LocalSimulation",
    "analytic": "fedguard.attacks.inference.analytic.linear_leak:LinearLeak",
    "spear": "fedguard.attacks.inference.analytic.spear:Spear",
    "r_gap": "fedguard.attacks.inference.analytic.r_gap:RGAP",
    "cocktail_party": "fedguard.attacks.inference.analytic.cocktail_party:CocktailParty",
    "robbing_the_fed": "fedguard.attacks.inference.malicious.robbing_the_fed:RobbingTheFed",
    "trap_weights": "fedguard.attacks.inference.malicious.trap_weights:TrapWeights",
    "fishing": "fedguard.attacks.inference.malicious.fishing:Fishing",
    "labels_idlg": "fedguard.attacks.inference.labels.idlg:IDLGLabels",
    "labels_negative_bias": "fedguard.attacks.inference.labels.negative_bias:NegativeBias",
    "labels_yin": "fedguard.attacks.inference.labels.yin:YinLabels",
    "labels_llg": "fedguard.attacks.inference.labels.llg:LLG",
    "labels_bias_corrected": "fedguard.attacks.inference.labels.bias_corrected:BiasCorrected",
    "labels_counts": "fedguard.attacks.inference.labels.counts:LabelCounts",
    "loss": "fedguard.attacks.inference.membership.loss_threshold:LossThreshold",
    "lira": "fedguard.attacks.inference.membership.lira:LiRA",
    "rmia": "fedguard.attacks.inference.membership.rmia:RMIA",
    "gradient_cosine": "fedguard.attacks.inference.membership.gradient_cosine:GradientCosine",
    "fed_mia": "fedguard.attacks.inference.membership.fed_mia:FedMIA",
    "nasr_passive": "fedguard.attacks.inference.membership.nasr_passive:NasrPassive",
    "nasr_active": "fedguard.attacks.inference.membership.nasr_active:NasrActive",
    "property_inference": "fedguard.attacks.inference.property_inference:PropertyInference",
}

#: Attacks on trained models, through their inputs.
EVASION = {
    "fgsm": "fedguard.attacks.evasion.fgsm:FGSM",
    "pgd": "fedguard.attacks.evasion.pgd:PGD",
}

#: Attacks on secure aggregation itself.
PROTOCOL = {
    "survivor_and_dropped": "fedguard.attacks.protocol.survivor_and_dropped:SurvivorAndDropped",
    "split_survivors": "fedguard.attacks.protocol.split_survivors:SplitSurvivors",
    "split_survivors_trusting": "fedguard.attacks.protocol.split_survivors_trusting:SplitSurvivorsTrusting",
    "second_request": "fedguard.attacks.protocol.second_request:SecondRequest",
    "race": "fedguard.attacks.protocol.race:Race",
    "key_substitution": "fedguard.attacks.protocol.key_substitution:KeySubstitution",
    "replay": "fedguard.attacks.protocol.replay:Replay",
    "retry": "fedguard.attacks.protocol.retry:Retry",
    "withheld_shares": "fedguard.attacks.protocol.withheld_shares:WithheldShares",
    "weak_parameters": "fedguard.attacks.protocol.weak_parameters:WeakParameters",
    "model_per_client": "fedguard.attacks.protocol.model_per_client:ModelPerClient",
    "sybils": "fedguard.attacks.protocol.sybils:Sybils",
    "differencing": "fedguard.attacks.protocol.differencing:Differencing",
    "disaggregation": "fedguard.attacks.protocol.disaggregation:Disaggregation",
    "graph_grinding": "fedguard.attacks.protocol.graph_grinding:GraphGrinding",
    "seed_search": "fedguard.attacks.protocol.seed_search:SeedSearch",
    "mask_reuse": "fedguard.attacks.protocol.mask_reuse:MaskReuse",
    "withheld_noise": "fedguard.attacks.protocol.withheld_noise:WithheldNoise",
    "overflow": "fedguard.attacks.protocol.overflow:Overflow",
    "ring_injection": "fedguard.attacks.protocol.ring_injection:RingInjection",
    "bad_shares": "fedguard.attacks.protocol.bad_shares:BadShares",
    "dropout": "fedguard.attacks.protocol.dropout:Dropout",
    "secret_search": "fedguard.attacks.protocol.secret_search:SecretSearch",
    "sum_leakage": "fedguard.attacks.protocol.sum_leakage:SumLeakage",
    "pooled_shares": "fedguard.attacks.protocol.pooled_shares:PooledShares",
    "false_sets": "fedguard.attacks.protocol.false_sets:FalseSets",
}
