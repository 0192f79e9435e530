"""Names of the columns of somebody else's table, and what a flag asks for if a column is missing."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.metrics.figures import FIGURES


@dataclass(frozen=True)
class ResultColumn:
    """The names of a column and the kind of its values.

    Attributes:
        name: its name in flags (`fedguard.metrics.flags.MissingFact`).
        aliases: other names; a blank, ``-`` and ``.`` are the same as ``_``.
        kind: ``text``, ``number``, ``share`` (in [0, 1], or in percent throughout the file) or ``truth``.
        setting: whether trainings with different values must not be compared.
    """

    name: str
    aliases: tuple[str, ...]
    kind: str = "text"
    setting: bool = False


COLUMNS = (
    ResultColumn("attack", ("attack_name", "attack_type", "adversary")),
    ResultColumn("defense", ("defence", "aggregator", "aggregation", "aggregation_rule", "agg", "rule", "gar")),
    ResultColumn("seed", ("random_seed", "repetition", "rep", "run", "trial"), "number"),
    ResultColumn("status", ()),
    *(ResultColumn(name, figure.aliases, "share") for name, figure in FIGURES.items() if figure.aliases),
    ResultColumn("controls.clean_defense", ("clean_accuracy", "clean_acc", "clean_defense", "no_attack_accuracy"), "share"),
    ResultColumn("controls.clean_mean", ("clean_mean", "clean_mean_accuracy", "clean_fedavg_accuracy"), "share"),
    ResultColumn("controls.silent_defense", ("silent_accuracy", "silent_defense", "honest_only_accuracy"), "share"),
    ResultColumn("controls.attack_mean", ("attack_mean", "undefended_accuracy", "attacked_mean_accuracy"), "share"),
    ResultColumn("attack_success_raw", ("asr", "attack_success", "attack_success_rate", "backdoor_accuracy"), "share"),
    ResultColumn(
        "attack_success_clean", ("asr_clean", "clean_asr", "baseline_asr", "clean_attack_success_rate"), "share"
    ),
    ResultColumn("attack_success_counts_target", ("counts_target", "includes_target_class"), "truth"),
    ResultColumn("chance", ("chance_accuracy", "random_accuracy", "majority_share"), "share"),
    ResultColumn("classes", ("n_classes", "num_classes"), "number"),
    ResultColumn("loss", ("final_loss", "test_loss"), "number"),
    ResultColumn("clients", ("n", "n_clients", "num_clients", "total_clients", "clients_total", "workers"), "number"),
    ResultColumn("per_round", ("clients_per_round", "sampled_clients", "participants"), "number"),
    ResultColumn(
        "malicious",
        ("f", "clients_malicious", "n_malicious", "num_malicious", "byzantine", "n_byzantine",
         "num_byzantine", "num_attackers", "attackers", "hostile", "malicious_fraction", "attacker_fraction", "true_f"),
        "number",
        True,
    ),
    ResultColumn("assumed_f", ("clients_assumed_f", "f_assumed", "declared_f", "tolerated_f", "told_f"), "number", True),
    ResultColumn("z", ("alie_z", "attack_z"), "number"),
    ResultColumn("partition", ("task_partition", "distribution", "data_distribution", "heterogeneity"), setting=True),
    ResultColumn("alpha", ("dirichlet_alpha", "task_partition_alpha"), "number", True),
    ResultColumn("dissimilarity", ("label_distance", "gradient_dissimilarity", "measured_heterogeneity"), "number"),
    ResultColumn("partition_seed", ("task_partition_seed", "split_seed", "data_seed"), "number"),
    ResultColumn("epsilon", ("eps", "dp_epsilon"), "number", True),
    ResultColumn("noise", ("noise_at", "dp_noise", "dp_type")),
    ResultColumn("secure_aggregation", ("secagg", "protocol_secure_aggregation", "masking"), setting=True),
    ResultColumn("root_data", ("root_examples", "server_root_data", "root_size"), "number", True),
    ResultColumn("overlap_with_test", ("root_overlap", "root_test_overlap"), "number"),
    ResultColumn("references.root_only", ("root_only", "root_only_accuracy"), "share"),
    ResultColumn("attack_notes.at_boundary", ("at_boundary", "strength_at_boundary"), "share"),
    ResultColumn("aggregate.hostile_length", ("hostile_length", "relative_norm"), "number"),
    ResultColumn("judged_on", ("tuned_on", "tuning_data")),
    ResultColumn("attacks", ("tuning_attack", "tuned_against", "tuning_attacks")),
    ResultColumn("dataset", ("data", "task", "task_data"), setting=True),
    ResultColumn("model", ("task_model", "architecture"), setting=True),
)  # fmt: skip

#: Columns in which an empty field means "none" rather than "unknown".
MAY_BE_EMPTY = ("epsilon", "attack_success_raw", "root_data", "partition_seed")

#: What flags ask for, in words, if the column has another name than the fact.
ASKED_FOR = {
    "attack_success_raw": "a column asr",
    "attack_success_counts_target": "a column counts_target",
    "rounds": "what happened in each round",
    "unproven": "n and f, and a defense that FedGuard knows",
    "server_sees": "what the server saw: a column secure_aggregation, and a defense that FedGuard knows",
    "attacks": "a column tuning_attack",
    "pipeline": "the code of the defenses",
    "tuning": "how the defenses were tuned: columns judged_on and tuning_attack",
    "controls.clean_mean": "rows without attack and without defense, or a column clean_mean",
    "controls.clean_defense": "rows without attack, or a column clean_accuracy",
    "controls.attack_mean": "rows without defense, or a column attack_mean",
    "controls.silent_defense": "a column silent_accuracy: the same while the malicious clients send nothing",
    "controls": "rows without attack and rows without defense",
    "attack_effect": "what the attack's other directions would have done, which FedGuard asks while it trains",
    "attack_notes": "how strengths were searched: a column at_boundary",
    "diverged": "a column loss",
    "chance": "a column chance, or classes",
    "curve": "the curve: every evaluation of each training",
    "per_round": "a column n, or per_round",
    "aggregate.hostile_length": "how long the malicious updates were: a column relative_norm",
    "dissimilarity": "a column label_distance",
    "trainings_beside_epsilon": "which settings of the training were tried on the same records, which no table tells",
    "kept": "what plug-ins keep from one trial to the next, which no table tells",
    "noise_from_seed": "where noise for privacy was drawn from, which no table tells",
}


def describe_missing_fact(path: str) -> str:
    """The column or information, in words, that would supply a fact that a flag lacks (`MissingFact`)."""
    column = next((column for column in COLUMNS if column.name == path), None)
    name = column.aliases[0] if column and "." in path else path
    return ASKED_FOR.get(path, f"a column {name}")
