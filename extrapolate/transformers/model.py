"""A decoder with any encoding as a model of `transformers`, which generates.

Shapes: B batch, T tokens, D width, G key and value heads, K head dim, V vocabulary.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from extrapolate.encodings.base import Dims, Encoding, encodings, layers_of
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.extensions.base import extensions
from extrapolate.model.attention import Maps
from extrapolate.model.llama import Decoder

UNPACKED = "turn packing off (TRL: packing=False, padding_free=False) and pad on the right"
SETTINGS: dict[str, Any] = {  # of ExtrapolateConfig, with their defaults
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "dropout": 0.0,
    "qk_norm": False,
    "qkv_bias": False,
    "activation": "silu",
    "post_norms": False,
    "ssmax": False,
    "sinks": False,
    "output_gate": False,
    "differential": False,
    "canon": False,
    "max_position_embeddings": 64,
    "training_length": 64,
    "needs_whole_text": False,
    "use_cache": True,
}


class ExtrapolateConfig(PretrainedConfig):
    """Sizes, named as in `LlamaConfig`, and where position enters.

    encoding, and each of extensions, has a `name` and `arguments`. The other settings are those of SETTINGS.
    training_length is L in tokens, the unit of extensions. needs_whole_text: every new token needs the whole text
    computed again, so nothing can be cached. For those from qk_norm to canon see `ModelConfig`.
    """

    model_type = "extrapolate"
    # The decoder's own names of the sizes.
    attribute_map = {  # noqa: RUF012 (transformers declares it without ClassVar)
        "width": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "ff_width": "intermediate_size",
        "norm_eps": "rms_norm_eps",
        "tied_embeddings": "tie_word_embeddings",
    }

    def __init__(
        self,
        encoding: dict[str, Any] | None = None,
        extensions: list[dict[str, Any]] | None = None,
        tie_word_embeddings: bool = False,
        **settings: Any,
    ) -> None:
        for name, default in SETTINGS.items():
            setattr(self, name, settings.pop(name, default))
        self.encoding: dict[str, Any] = {"name": "none", "arguments": {}} if encoding is None else encoding
        self.extensions = extensions or []
        super().__init__(**settings)
        self.tie_word_embeddings = tie_word_embeddings


class ExtrapolateForCausalLM(PreTrainedModel, GenerationMixin):
    """The decoder, its head, and a cache of keys and values.

    The texts of a batch start at the left. Padding on the right changes nothing.
    """

    config_class = ExtrapolateConfig
    _supports_sdpa = True  # which the decoder calls where it can

    def __init__(self, config: ExtrapolateConfig) -> None:
        super().__init__(config)
        dims = Dims(
            config.hidden_size,
            config.num_attention_heads,
            config.head_dim,
            config.training_length,
            layers=config.num_hidden_layers,
            kv_heads=config.num_key_value_heads,
        )
        # from_pretrained makes models on the meta device, where tensors that are in no file would be lost.
        with torch.device("cpu"):
            cls = encodings[config.encoding["name"]]
            layers = layers_of(cls, config.encoding["arguments"], dims)
            self.decoder = Decoder(cast(Any, config), layers, config.training_length)
        self.parts = [
            extensions[part["name"]](**part["arguments"]).with_layers(part["layers"]) for part in config.extensions
        ]
        for module in self.decoder.modules():
            module._non_persistent_buffers_set.clear()  # the file has all of them
            for name, buffer in module._buffers.items():  # one for each layer, as only parameters can be tied
                module._buffers[name] = None if buffer is None else buffer.clone()
        first_names: dict[int, str] = {}
        self._tied_weights_keys = {
            name: first
            for name, parameter in self.named_parameters(remove_duplicate=False)
            if (first := first_names.setdefault(id(parameter), name)) != name
        }
        self.post_init()
        # Not a class attribute: versions before 5 refuse that if the encoding has no parameters. Buffers count too.
        self._keep_in_fp32_modules_strict = {"encoding"}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """The names of tied parameters, including those that layers share, which no field of a config says."""
        return dict(self._tied_weights_keys)

    def _init_weights(self, module: nn.Module) -> None:
        """Does nothing: the modules draw their own weights when they are made."""

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embedding

    def set_input_embeddings(self, value: Any) -> None:
        self.decoder.embedding = value

    def get_output_embeddings(self) -> nn.Module:
        return self.decoder.head

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        self.decoder.head = new_embeddings

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves the model to another device or dtype, but keeps the encodings' own tensors in float32."""
        own = [tensor for one in self.decoder.encodings for tensor in (*one.parameters(), *one.buffers())]
        own += [tensor.grad for tensor in own if tensor.grad is not None]
        kept = {id(tensor) for tensor in own}

        def moved(tensor: Tensor) -> Tensor:
            new = fn(tensor)
            fewer = id(tensor) in kept and new.element_size() < tensor.element_size()
            return tensor.to(new.device) if fewer else new

        return super()._apply(moved, recurse)

    def prepare_inputs_for_generation(self, *arguments: Any, **kwargs: Any) -> dict[str, Any]:
        """Drops what `forward` does not need: positions, the tokenizer of stop_strings, and cache_position (before
        version 5).
        """
        inputs = cast(Any, super()).prepare_inputs_for_generation(*arguments, **kwargs)
        return {
            name: value for name, value in inputs.items() if name not in ("tokenizer", "position_ids", "cache_position")
        }

    def plan(self, length: int) -> Plan:
        """What the extensions change in a text of `length` tokens."""
        plan = PLAIN
        for part in self.parts:
            plan = plan.joined(part.applied(self.decoder.encoding, self.config.training_length, length))
        return plan

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: DynamicCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        inputs_embeds: None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        cu_seq_lens_q: None = None,
        cu_seq_lens_k: None = None,
        max_length_q: None = None,
        max_length_k: None = None,
    ) -> CausalLMOutputWithPast | tuple[Tensor, ...]:
        """Logits, [B, T, V], and the loss if there are labels, like other causal models of `transformers`.

        position_ids: those of one text in each row, as without them: [T], [1, T] or [B, T], from 0, or from the number
        of cached tokens; those of padding do not matter.
        output_attentions: also returns attention weights in `attentions`, for each layer [B, H, T, T], or
        [B, H, T, past + T] with a cache; None for a layer that has something in place of attention.
        inputs_embeds and output_hidden_states exist for libraries that pass them unset, such as PEFT. cu_seq_lens_q and
        the others that describe packed texts exist to be refused.

        Raises ValueError on padding to the left of a text, other positions, such as those of packed texts, a text that
        is too long for the encoding, a cache if the model cannot use one or it is not a DynamicCache, and inputs or
        outputs that the model does not have.
        """
        if inputs_embeds is not None or output_hidden_states:
            raise ValueError("this model takes token ids and gives logits: it has no other inputs and outputs")
        if any(one is not None for one in (cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)):
            raise ValueError(f"several texts in one row are not supported: {UNPACKED}")
        if attention_mask is not None and (attention_mask[:, 1:] > attention_mask[:, :-1]).any():
            raise ValueError(
                "no padding may stand before a token: pad on the right for logits, and generate from texts of one "
                "length, or from one at a time"
            )
        if past_key_values is not None and self.config.needs_whole_text:
            raise ValueError(
                "this model computes the whole text anew for every further token: use it with use_cache=False"
            )
        if past_key_values is not None and not isinstance(past_key_values, DynamicCache):
            raise ValueError(f"this model keeps its past in a DynamicCache, not in a {type(past_key_values).__name__}")
        if use_cache is None:
            use_cache = self.config.use_cache and not torch.is_grad_enabled()
        if use_cache and past_key_values is None and not self.config.needs_whole_text:
            past_key_values = DynamicCache()
        cache = None if past_key_values is None else KeysAndValues(past_key_values)
        length = input_ids.shape[1] + (0 if cache is None else cache.length)
        if position_ids is not None:
            self._check_positions(position_ids, attention_mask, length - input_ids.shape[1], length)
        plan = self.plan(length)
        if not self.decoder.defined_at(length, plan):
            raise ValueError(f"{self.decoder.encoding.display} is not defined for a text of {length} tokens")
        maps = Maps(length, length - input_ids.shape[1]) if output_attentions else None
        setting = replace(self.decoder.resolve(plan), observer=maps)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        dtype = self.decoder.head.weight.dtype
        # With weights in few bits, positions and what encodings compute from them stay in float32, as in evaluations.
        few_bits = dtype in (torch.bfloat16, torch.float16)
        with torch.autocast(input_ids.device.type, dtype) if few_bits else nullcontext():
            hidden_BTD = self.decoder.hidden(input_ids, setting, cache=cache)
            logits_BTV = self.decoder.head(hidden_BTD[:, kept])
        loss = None if labels is None else self.loss_function(logits_BTV, labels, self.config.vocab_size)
        layers = range(self.config.num_hidden_layers)
        attentions = None if maps is None else tuple(maps.weights.get(layer) for layer in layers)
        output = CausalLMOutputWithPast(
            loss=loss,
            logits=logits_BTV,
            past_key_values=past_key_values,
            attentions=cast(Any, attentions),  # declared without None, the value for layers without attention
        )
        return output if return_dict in (None, True) else output.to_tuple()

    def _check_positions(self, position_ids: Tensor, attention_mask: Tensor | None, first: int, end: int) -> None:
        """Raises ValueError unless the positions, but for those of padding, are first .. end-1."""
        expected_T = torch.arange(first, end, device=position_ids.device)
        same = position_ids.shape[-1] == len(expected_T)
        if same:
            wrong_BT = position_ids != expected_T
            if attention_mask is not None:
                wrong_BT = wrong_BT & attention_mask[:, first:].bool()
            same = not wrong_BT.any()
        if not same:
            raise ValueError(
                f"position_ids must be {first} to {end - 1} in every row: each is one text, so texts cannot be packed "
                f"into one; {UNPACKED}"
            )


class KeysAndValues:
    """Adapts the cache of `transformers` to the decoder, which also caches the inputs of gates."""

    def __init__(self, kept: DynamicCache) -> None:
        self.kept, self.length = kept, kept.get_seq_length()

    def extend(
        self, encoding: Encoding, k_BGTK: Tensor, v_BGTK: Tensor, x_BTD: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `extrapolate.model.llama.Cache`."""
        if type(encoding).prepare is Encoding.prepare:
            x_BTD = x_BTD[..., :0]
        both, inputs = self.kept.update(torch.cat([k_BGTK, v_BGTK], dim=-1), x_BTD[:, None], encoding.dims.layer)
        k_BGTK, v_BGTK = both.split([k_BGTK.shape[-1], v_BGTK.shape[-1]], dim=-1)
        return k_BGTK, v_BGTK, inputs[:, 0]
