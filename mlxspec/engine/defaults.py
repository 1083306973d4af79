"""What the default of a parameter stands for with a target: in words that a list of parameters can show."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from mlxspec.chat.parameters import PARAMETERS

if TYPE_CHECKING:
    from mlxspec.places import Places


def default_texts(target_name: str | None, where: Places, *, seeded: bool) -> dict[str, str]:
    """By the field of the parameter; what is not known is not there.

    Args:
        target_name: the target in memory; None when there is none, and then sampling is not known.
        seeded: whether a seed is fixed, which changes the rule.
    """
    texts = {
        "max_tokens": "no limit",
        "accept": "coupled" if seeded else "block",
        "think": "its own way",
    }
    sampling = {} if target_name is None else sampling_of(target_name, where)
    for parameter in PARAMETERS.values():
        if parameter.field in sampling:
            texts[parameter.field] = parameter.show(sampling[parameter.field])
    return texts


def sampling_of(target_name: str, where: Places) -> dict[str, float]:
    """How answers are sampled when nothing is asked for: as the registry, the model, then mlxspec say."""
    # Here and not at the top: it loads MLX.
    from mlxspec.decoding.sampling import SamplingParams
    from mlxspec.errors import MlxspecError
    from mlxspec.models import sources
    from mlxspec.models.model_folder import json_object
    from mlxspec.models.model_limits import sampling_defaults
    from mlxspec.models.registry import load_registry

    try:
        spec = load_registry(where).resolve(target_name)
    except MlxspecError:
        return {}
    folder = sources.find(spec, where)
    if folder is None:
        return {}
    own = {field.name: field.default for field in fields(SamplingParams)}
    numbers = {name: float(value) for name, value in own.items() if isinstance(value, int | float)}
    return {**numbers, **sampling_defaults(json_object(folder / "generation_config.json")), **spec.sampling}
