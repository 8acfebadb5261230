"""Evaluating in fewer bits than a model was trained in."""

import copy
import logging

from torch import nn

from extrapolate.encodings.base import Storage
from extrapolate.errors import UserError
from extrapolate.model.language_model import LanguageModel
from extrapolate.model.model import Model


def in_precision(model: LanguageModel, precision: str) -> LanguageModel:
    """The model as `precision` runs it: fp32 and bf16 leave the weights alone, int8 is a copy.

    int8 quantises the linear layers with torchao, except an encoding's own: weights by channel, inputs by token and
    dynamically. Raises UserError if torchao is missing, or another library runs the model.
    """
    if precision != "int8":
        return model
    if not isinstance(model, Model):
        raise UserError(f"{model.label()} cannot be evaluated in int8: another library runs it")
    for name in ("torchao", "torch.utils._pytree"):  # they warn of kernels for other machines, and of each other
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError:
        raise UserError("int8 needs the torchao package: pip install 'extrapolate[int8]'") from None
    quantised = copy.deepcopy(model)
    if model.config.tied_embeddings:  # keeps the embedding, a lookup table, as it is
        quantised.head.weight = nn.Parameter(model.head.weight.detach().clone())
    quantize_(
        quantised,
        Int8DynamicActivationInt8WeightConfig(),
        filter_fn=lambda module, name: isinstance(module, nn.Linear) and ".encoding." not in name,
    )
    return quantised


def storage_of(precision: str) -> Storage:
    """The type that an encoding's own values are rounded to: under int8, everything outside linear layers is bf16."""
    return "fp32" if precision == "fp32" else "bf16"
