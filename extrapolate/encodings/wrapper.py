"""An encoding around another."""

from typing import Any, Self

from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Context, Dims, Encoding, Rotations, Spectrum, encodings
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError


def made(text: str, dims: Dims) -> tuple[str, Encoding]:
    """The name in a spec, and the encoding. Raises UserError if it is not registered, or refuses its arguments."""
    spec = specs.parse(text)
    if ":" in spec.name:
        raise UserError(f"the base must be a registered encoding, not a class of a file: {spec.name}")
    cls = encodings[spec.name]
    return spec.name, cls(dims, **specs.convert_arguments(cls, spec.arguments, owner=spec.name))


class Wrapper(Encoding):
    """Wraps a base encoding: every hook is the base's unless overridden, and so is the path that attention takes."""

    family = "wrapper"

    def __init__(self, dims: Dims, base: str, base_dims: Dims | None = None) -> None:
        """Raises UserError if `base`, a spec, does not name a registered encoding, or the encoding refuses it."""
        super().__init__(dims)
        self.inner_name, self.inner = made(base, dims if base_dims is None else base_dims)
        self.base = specs.spell(self.inner_name, self.inner.arguments())
        self.accepts = self.inner.accepts
        self.caption, self.rescales = self.inner.caption, self.inner.rescales
        self.max_length, self.window = self.inner.max_length, self.inner.window

    def label(self) -> str:
        given = [f"{name}={value}" for name, value in self.unusual_arguments().items() if name != "base"]
        return f"{self.display}({', '.join([self.inner.label(), *given])})"

    def unusual_arguments(self) -> dict[str, Any]:
        """Like any encoding's; the base's spec leaves out its own defaults."""
        unusual = super().unusual_arguments()
        if "base" in unusual:
            unusual["base"] = specs.spell(self.inner_name, self.inner.unusual_arguments())
        return unusual

    def share(self, first_layer: Self) -> None:
        super().share(first_layer)
        self.inner.share(first_layer.inner)

    @property
    def has_rotation(self) -> bool:
        return self.inner.has_rotation

    def positions(self, index_T: Tensor) -> Tensor:
        return self.inner.positions(index_T)

    def embed(self, x_BTD: Tensor, pos_T: Tensor) -> Tensor:
        return self.inner.embed(x_BTD, pos_T)

    def embeddings(self) -> list[Tensor]:
        return self.inner.embeddings()

    def attention_input(self, x_BTD: Tensor, pos_T: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.attention_input(x_BTD, pos_T)

    def prepare(self, x_BTD: Tensor) -> Any:
        return self.inner.prepare(x_BTD)

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        return self.inner.rotate(q_BHTK, k_BGSK, pos_T, pos_S, state)

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor | None:
        return self.inner.bias(pos_T, pos_S)

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor | None:
        return self.inner.scores(q_BHTK, k_BHSK, context)

    def weights(self, scores_BHTS: Tensor, context: Context) -> Tensor | None:
        return self.inner.weights(scores_BHTS, context)

    def mix(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, state: Any) -> Tensor | None:
        return self.inner.mix(q_BHTK, k_BGTK, v_BGTK, state)

    def begin_step(self, done: float) -> None:
        self.inner.begin_step(done)

    def attends(self) -> bool:
        return self.inner.attends()

    def constrain(self) -> None:
        self.inner.constrain()

    def spectrum(self) -> Spectrum | None:
        return self.inner.spectrum()

    def rotations(self) -> Rotations | None:
        return self.inner.rotations()

    def extended(self, plan: Plan) -> Self:
        return super().extended(plan).copy_with(inner=self.inner.extended(plan))
