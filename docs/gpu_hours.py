"""The table of docs/scaling.md: what the large presets cost, by arithmetic."""

from extrapolate.model.config import ModelConfig
from extrapolate.model.size import parameter_count
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.presets import preset
from extrapolate.runs.resolve import operations
from extrapolate.runs.training_config import TrainingConfig

PRESETS = ("expe-35m", "expe-135m", "expe-342m")
# Peak rates of dense bfloat16 products as the vendor states them, operations a second.
PEAKS = {"A100": 312e12, "H100": 989e12}
UTILISATION = {"35 %": 0.35, "20 %": 0.20}


def table() -> str:
    """A row a preset: parameters, tokens, operations, and hours on each GPU at each share of its peak."""
    shares = [(gpu, words) for gpu in PEAKS for words in UTILISATION]
    heading = ["preset", "parameters", "tokens", "operations", *(f"{gpu} hours at {words}" for gpu, words in shares)]
    lines = [heading, ["---"] * len(heading), *map(_row, PRESETS)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(name: str) -> list[str]:
    sections = preset(name)
    model, training = ModelConfig(**sections["model"]), TrainingConfig(**sections["training"])
    flops = operations(TrainedConfig.model_construct(model=model, training=training))
    hours = [flops / (peak * share) / 3600 for peak in PEAKS.values() for share in UTILISATION.values()]
    return [
        f"`{name}`", f"{parameter_count(model) / 1e6:.1f} M", f"{training.tokens / 1e9:g} B", f"{flops:.1e}",
        *(f"{value:.1f}" for value in hours),
    ]  # fmt: skip
