"""A plan, resolved for the layers of one model."""

from dataclasses import dataclass

from extrapolate.encodings.base import Encoding
from extrapolate.model.plan import Plan


@dataclass(frozen=True)
class Setting:
    """A plan, and each layer's encoding as the plan and the precision of an evaluation change it: see `Model.setting`.

    The encodings share the model's parameters and buffers, on the device and in the mode, training or evaluation,
    that the model had. Make another one after changing either.
    """

    plan: Plan
    encodings: tuple[Encoding, ...]
