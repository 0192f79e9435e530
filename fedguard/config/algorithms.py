"""The algorithm that a suite's training names, with the parameters given beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

from fedguard.adapters.form import AdapterForm
from fedguard.adapters.model import AdaptedModel
from fedguard.contracts import FederatedAlgorithm, Model, Pipeline, StatisticsFate, Training
from fedguard.contracts.first_model import pin
from fedguard.contracts.specs import Spec, split_spec
from fedguard.errors import ConfigError, UnknownName
from fedguard.registry import Registry

#: What becomes of running statistics if a suite does not say: beside a mean of updates, and beside a robust rule for them.
#: Rows with a memory are stale by size, and no rule separates these from false ones; fresh rows are alike
USUAL_FATE: Spec = "weighted"
GUARDED_FATE: Spec = {"name": "recomputed", "rule": "trimmed_mean"}
MEANS = ("mean", "weighted_mean")


def build_algorithm(
    training: Training, known: Registry, places: Mapping[str, str]
) -> tuple[FederatedAlgorithm, Training]:
    """Build the algorithm that a training names; also the training, with its first model pinned.

    Args:
        places: location of ``training``, and of each of its keys that belongs to the algorithm, for messages.

    Raises:
        ConfigError: the algorithm or a parameter is unknown, or settings are incompatible.
    """
    where = places.get("training", "training")
    name, given = split_spec("algorithm", training.algorithm, places.get("training.algorithm", where))
    cls, keys = known.get("algorithm", name, places.get("training.algorithm", where)), Training.model_fields
    parameters = [field.name for field in cls.fields()]
    if taken := sorted({*parameters} & {*keys}):
        raise ConfigError(
            f"{where}: {name} has a parameter {taken[0]}, which is a key of training. Rename the parameter."
        )
    for key, value in training.own.items():
        at = places.get(f"training.{key}", f"training.{key}")
        if key in parameters:
            if key in given:
                raise ConfigError(f"{at}: {key} is given twice, in training and in its algorithm. Leave out one.")
            continue
        owners = [cls.name for _, cls in known.classes(["algorithm"]) if key in {field.name for field in cls.fields()}]
        if not owners:
            raise UnknownName("key", key, [*keys, *parameters], at)
        if value is not None:
            raise ConfigError(f"{where}: {key} is a parameter of {' and '.join(owners)}; got algorithm: {name}.")
    # Older versions spelled out null for every parameter; where null is not allowed, it means the default
    own = {
        key: value
        for key, value in training.own.items()
        if key in parameters and (value is not None or type(None) in get_args(cls.types()[key]))
    }
    algorithm: FederatedAlgorithm = known.build("algorithm", {"name": name, **given, **own}, where)
    try:
        algorithm.check(training)
    except ConfigError as error:
        raise type(error)(f"{where}: {error}") from None
    if training.first_model is None:
        return algorithm, training
    try:
        return algorithm, training.model_copy(update={"first_model": pin(training.first_model)})
    except ConfigError as error:
        at = places.get("training.first_model", "training.first_model")
        raise ConfigError(f"{at}: {str(error).removeprefix('training.first_model: ')}") from None


def build_fate(
    training: Training,
    algorithm: FederatedAlgorithm,
    pipeline: Pipeline,
    known: Registry,
    where: str = "training.statistics",
) -> tuple[StatisticsFate, Training]:
    """The fate of running statistics that a training names; also the training with it spelled out, or without the default.

    Raises:
        ConfigError: the fate or a parameter is unknown.
    """
    robust = pipeline.rule.name not in MEANS or bool(pipeline.mixings)
    by_default = algorithm.usual_statistics or (GUARDED_FATE if robust else USUAL_FATE)
    usual: StatisticsFate = known.build("statistics", by_default)
    given = training.statistics
    fate: StatisticsFate = usual if given is None else known.build("statistics", given, where)
    spec = fate.spec()
    told = None if fate == usual else spec if len(spec) > 1 else fate.name
    return fate, training.model_copy(update={"statistics": told})


def put_adapters(
    model: Model, training: Training, known: Registry, where: str = "training.adapters"
) -> tuple[Model, Training]:
    """The model with the adapters that a training names; also the training with them spelled out.

    Raises:
        ConfigError: the form or a parameter is unknown.
    """
    if training.adapters is None:
        return model, training
    form: AdapterForm = known.build("adapters", training.adapters, where)
    return AdaptedModel(model=model, form=form), training.model_copy(update={"adapters": form.spec()})


def settings(algorithm: FederatedAlgorithm, training: Training) -> dict[str, Any]:
    """The training as JSON from which it can be built again; keys added in later versions appear only if they are set."""
    spec, optimizer = algorithm.spec(), training.server_optimizer
    kept = vars(training) | {"server_optimizer": optimizer and asdict(optimizer), "algorithm": spec.pop("name")} | spec
    later = {
        "local_steps": None,
        "server_optimizer": None,
        "dtype": "float32",
        "first_model": None,
        "statistics": None,
        "adapters": None,
    }
    return {key: value for key, value in kept.items() if later.get(key, ...) != value}
