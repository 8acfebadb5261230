"""A plan, resolved for the layers of one model."""

from dataclasses import dataclass, replace

from extrapolate.encodings.base import Encoding
from extrapolate.encodings.plan import Plan
from extrapolate.model.attention import QUERIES_PER_CHUNK, Observer


@dataclass(frozen=True)
class Setting:
    """A plan, and each layer's encoding as the plan and the precision of an evaluation change it: see `Model.setting`.

    The encodings share the model's parameters and buffers, on the device and in the mode, training or evaluation,
    that the model had. Make another one after changing either. queries_per_chunk: how many queries attention computes
    at a time where it makes chunks (default: as `model.attention` says). observer: is shown what attention computes
    (default: nobody is, and nothing is computed for it).
    """

    plan: Plan
    encodings: tuple[Encoding, ...]
    queries_per_chunk: int | None = None
    observer: Observer | None = None

    def smaller(self) -> "Setting | None":
        """The same with half the queries in a chunk, for less memory; None where a chunk is one query already."""
        queries = self.queries_per_chunk or QUERIES_PER_CHUNK
        return None if queries == 1 else replace(self, queries_per_chunk=queries // 2)
