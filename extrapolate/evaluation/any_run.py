"""What can be evaluated: a run with weights, or a model that another library runs."""

from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from extrapolate.extensions.recipe import Recipe
from extrapolate.model.language_model import LanguageModel
from extrapolate.runs.config import RunConfig
from extrapolate.runs.weights import Checkpoint


class AnyRun(Protocol):
    """A folder that keeps the rows, what is known of the model, and the model itself, by checkpoint.

    A `Run` or a `ForeignRun`.
    """

    @property
    def path(self) -> Path:
        """The folder."""

    @property
    def name(self) -> str:
        """The folder's name."""

    @property
    def config(self) -> RunConfig:
        """What is known of the model."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Which version, commit and machine made the folder."""

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns text into the model's tokens."""

    @property
    def own_extension(self) -> Recipe | None:
        """The extension that belongs to the model and always applies."""

    def checkpoints(self, which: str) -> list[Checkpoint]:
        """`last`, or `all` that were kept."""

    def build_model(self) -> LanguageModel:
        """The model, with whatever weights: for what does not depend on them."""

    def load_model(self, checkpoint: Checkpoint) -> LanguageModel:
        """The model with a checkpoint's weights, for evaluation."""

    def training_seconds(self) -> float | None:
        """What training took; None if that is not known."""

    def training_taken(self) -> float | None:
        """The share of the time of computing that other programs took in training; None if that is not known."""
