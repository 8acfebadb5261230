"""The interfaces of everything that can be evaluated, before it has weights and after."""

from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from extrapolate.data.special_tokens import SpecialTokens
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.model.language_model import LanguageModel
from extrapolate.runs.config import RunConfig
from extrapolate.runs.weights import Checkpoint


class Subject(Protocol):
    """What an evaluation is planned for: any run, or a study's cell, which has no weights yet."""

    @property
    def path(self) -> Path:
        """The folder that keeps its rows."""

    @property
    def config(self) -> RunConfig:
        """What is known of the model."""

    @property
    def own_extension(self) -> ExtensionStack | None:
        """The extension that belongs to the model and always applies."""

    @property
    def special_tokens(self) -> SpecialTokens:
        """The tokens that begin and end its texts."""

    def build_model(self) -> LanguageModel:
        """The model with arbitrary weights, for anything that does not depend on them."""

    def checkpoints(self, which: str) -> list[Checkpoint]:
        """The `last` one, `all` that are kept, or that of `half` the budget, if it is."""


class AnyRun(Subject, Protocol):
    """A `Run`, or a `ForeignRun`, whose model belongs to another library."""

    @property
    def name(self) -> str:
        """The folder's name."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Which version, commit and machine made the folder."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Turns text into the model's tokens."""

    def load_model(self, checkpoint: Checkpoint) -> LanguageModel:
        """The model with a checkpoint's weights, for evaluation."""

    def training_seconds(self) -> float | None:
        """How long training took; None if unknown."""

    def training_taken(self) -> float | None:
        """The share of the training's computing time that went to other programs; None if unknown."""
