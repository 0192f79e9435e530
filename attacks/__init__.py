"""Attacks, one file each. A row in this table is all that makes one known.

poisoning/   untargeted: on the update, or on the colluders' data
backdoor/    a hidden function behind a trigger; triggers/ holds the triggers
outliers/    faults without intent: broken, stale or lazy clients
"""

CATALOGUE = {
    "sign_flip": "fedguard.attacks.poisoning.sign_flip:SignFlip",
    "ipm": "fedguard.attacks.poisoning.ipm:IPM",
    "alie": "fedguard.attacks.poisoning.alie:ALIE",
    "min_max": "fedguard.attacks.poisoning.min_max:MinMax",
    "mimic": "fedguard.attacks.poisoning.mimic:Mimic",
    "gaussian": "fedguard.attacks.poisoning.gaussian:Gaussian",
    "label_flip": "fedguard.attacks.poisoning.label_flip:LabelFlip",
    "model_replacement": "fedguard.attacks.backdoor.model_replacement:ModelReplacement",
    "nan": "fedguard.attacks.outliers.nan:NotANumber",
    "huge_value": "fedguard.attacks.outliers.huge_value:HugeValue",
    "stale": "fedguard.attacks.outliers.stale:Stale",
    "free_rider": "fedguard.attacks.outliers.free_rider:FreeRider",
}

TRIGGERS = {
    "pixel_patch": "fedguard.attacks.backdoor.triggers.pixel_patch:PixelPatch",
}
