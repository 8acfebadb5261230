"""Registers the models of this project with `transformers`: `import extrapolate.transformers`.

After that, `AutoModelForCausalLM.from_pretrained` loads exported models without `trust_remote_code`.
"""

from os import PathLike
from pathlib import Path
from typing import Any

try:
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as error:
    raise ImportError(
        "extrapolate.transformers needs the package transformers: pip install 'extrapolate[peers]'"
    ) from error

from extrapolate.interop.code import AUTO_MAP, code_of
from extrapolate.transformers import model
from extrapolate.transformers.model import ExtrapolateConfig


class ExtrapolateForCausalLM(model.ExtrapolateForCausalLM):
    """The model, which saves its code beside its weights like `export`, for those who do not have this package."""

    def save_pretrained(self, save_directory: str | PathLike[Any], *arguments: Any, **options: Any) -> None:
        """Saves the weights, the configuration and the code."""
        called = [self.config.encoding["name"], *(part["name"] for part in self.config.extensions)]
        classes = dict(zip(map(type, [self.decoder.encoding, *self.parts]), called, strict=True))
        self.config.auto_map = AUTO_MAP
        super().save_pretrained(save_directory, *arguments, **options)
        for file, code in code_of(self.decoder, classes).items():
            (Path(save_directory) / file).write_text(code, encoding="utf-8")


AutoConfig.register(ExtrapolateConfig.model_type, ExtrapolateConfig)
AutoModelForCausalLM.register(ExtrapolateConfig, ExtrapolateForCausalLM)
