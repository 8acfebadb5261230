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


class ExtrapolateConfig(PretrainedConfig):
    """Sizes, named as in `LlamaConfig`, and where position enters.

    encoding, and each of extensions, has a `name` and `arguments`. training_length is L, tokens: what extensions count
    in. needs_whole_text: every further token needs the whole text computed anew, so that nothing can be cached.
    All from qk_norm to canon: as `ModelConfig` says.
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
        vocab_size: int = 2048,
        hidden_size: int = 128,
        intermediate_size: int = 384,
        num_hidden_layers: int = 4,
        num_attention_heads: int = 4,
        num_key_value_heads: int = 4,
        head_dim: int = 32,
        rms_norm_eps: float = 1e-5,
        dropout: float = 0.0,
        qk_norm: bool = False,
        qkv_bias: bool = False,
        activation: str = "silu",
        post_norms: bool = False,
        ssmax: bool = False,
        sinks: bool = False,
        output_gate: bool = False,
        differential: bool = False,
        canon: bool = False,
        max_position_embeddings: int = 64,
        training_length: int = 64,
        encoding: dict[str, Any] | None = None,
        extensions: list[dict[str, Any]] | None = None,
        needs_whole_text: bool = False,
        tie_word_embeddings: bool = False,
        use_cache: bool = True,
        **others: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.rms_norm_eps = rms_norm_eps
        self.dropout = dropout
        self.qk_norm = qk_norm
        self.qkv_bias = qkv_bias
        self.activation = activation
        self.post_norms = post_norms
        self.ssmax = ssmax
        self.sinks = sinks
        self.output_gate = output_gate
        self.differential = differential
        self.canon = canon
        self.max_position_embeddings = max_position_embeddings
        self.training_length = training_length
        self.encoding: dict[str, Any] = {"name": "none", "arguments": {}} if encoding is None else encoding
        self.extensions = extensions or []
        self.needs_whole_text = needs_whole_text
        self.use_cache = use_cache
        super().__init__(**others)
        self.tie_word_embeddings = tie_word_embeddings


class ExtrapolateForCausalLM(PreTrainedModel, GenerationMixin):
    """The decoder, its head, and a cache of keys and values.

    The texts of a batch start at the left: there may be padding on the right, which changes nothing.
    """

    config_class = ExtrapolateConfig
    _supports_sdpa = True  # it is what the decoder calls wherever it can

    def __init__(self, config: ExtrapolateConfig) -> None:
        super().__init__(config)
        dims = Dims(
            config.hidden_size,
            config.num_attention_heads,
            config.head_dim,
            config.training_length,
            layers=config.num_hidden_layers,
        )
        # from_pretrained makes models on no device: a tensor that no file holds would be lost.
        with torch.device("cpu"):
            cls = encodings[config.encoding["name"]]
            layers = layers_of(cls, config.encoding["arguments"], dims)
            self.decoder = Decoder(cast(Any, config), layers, config.training_length)
        self.parts = [
            extensions[part["name"]](**part["arguments"]).with_layers(part["layers"]) for part in config.extensions
        ]
        for module in self.decoder.modules():
            module._non_persistent_buffers_set.clear()  # the file holds all of them
            for name, buffer in module._buffers.items():  # each layer its own: only parameters can be tied
                module._buffers[name] = None if buffer is None else buffer.clone()
        first_names: dict[int, str] = {}
        self._tied_weights_keys = {
            name: first
            for name, parameter in self.named_parameters(remove_duplicate=False)
            if (first := first_names.setdefault(id(parameter), name)) != name
        }
        self.post_init()
        # Not of the class: versions before 5 refuse it where the encoding has no parameters, and buffers count, too.
        self._keep_in_fp32_modules_strict = {"encoding"}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Parameters that are another one, and its name: also what layers share, which no field of a config says."""
        return dict(self._tied_weights_keys)

    def _init_weights(self, module: nn.Module) -> None:
        """The modules draw their own weights when they are made."""

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embedding

    def set_input_embeddings(self, value: Any) -> None:
        self.decoder.embedding = value

    def get_output_embeddings(self) -> nn.Module:
        return self.decoder.head

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        self.decoder.head = new_embeddings

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves the model to a device, or to fewer bits: what encodings have of their own stays float32 there, too."""
        own = [tensor for one in self.decoder.encodings for tensor in (*one.parameters(), *one.buffers())]
        own += [tensor.grad for tensor in own if tensor.grad is not None]
        kept = {id(tensor) for tensor in own}

        def moved(tensor: Tensor) -> Tensor:
            new = fn(tensor)
            fewer = id(tensor) in kept and new.element_size() < tensor.element_size()
            return tensor.to(new.device) if fewer else new

        return super()._apply(moved, recurse)

    def prepare_inputs_for_generation(self, *arguments: Any, **kwargs: Any) -> dict[str, Any]:
        """As usual, without what `forward` does not take: the tokenizer of stop_strings, and places in a cache.

        Versions of `transformers` before 5 hand those places to all models.
        """
        inputs = cast(Any, super()).prepare_inputs_for_generation(*arguments, **kwargs)
        return {name: value for name, value in inputs.items() if name not in ("tokenizer", "cache_position")}

    def plan(self, length: int) -> Plan:
        """What the extensions change in a text of so many tokens."""
        plan = PLAIN
        for part in self.parts:
            plan = plan.joined(part.applied(self.decoder.encoding, self.config.training_length, length))
        return plan

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: DynamicCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        inputs_embeds: None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> CausalLMOutputWithPast | tuple[Tensor, ...]:
        """Logits, [B, T, V], and the loss where there are labels, as other causal models of `transformers` have them.

        output_attentions: also the weights of attention, in `attentions`: of every layer, [B, H, T, T], or with what a
        cache holds as further keys, [B, H, T, past + T]; None for a layer that has something in place of attention.
        inputs_embeds and output_hidden_states are there for libraries that name them and leave them out, as PEFT does.

        Raises ValueError on padding to the left of a text, on a text that is too long for the encoding, on a cache
        where the model can have none, or one of another kind than DynamicCache, and on inputs or outputs that it does
        not have.
        """
        if inputs_embeds is not None or output_hidden_states:
            raise ValueError("this model takes token ids and gives logits: it has no other inputs and outputs")
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
        plan = self.plan(length)
        if not self.decoder.defined_at(length, plan):
            raise ValueError(f"{self.decoder.encoding.display} is not defined for a text of {length} tokens")
        maps = Maps(length, length - input_ids.shape[1]) if output_attentions else None
        setting = replace(self.decoder.setting(plan), observer=maps)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        dtype = self.decoder.head.weight.dtype
        # Weights in few bits: positions, and what encodings make of them, stay float32, as in evaluations here.
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
            attentions=cast(Any, attentions),  # declared without None, which it has for layers without attention
        )
        return output if return_dict in (None, True) else output.to_tuple()


class KeysAndValues:
    """The cache of `transformers` as the decoder has it: beside keys and values, the inputs that gates are made of."""

    def __init__(self, kept: DynamicCache) -> None:
        self.kept, self.length = kept, kept.get_seq_length()

    def extend(
        self, encoding: Encoding, k_BGTK: Tensor, v_BGTK: Tensor, x_BTD: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Cache`."""
        if type(encoding).prepare is Encoding.prepare:
            x_BTD = x_BTD[..., :0]
        both, inputs = self.kept.update(torch.cat([k_BGTK, v_BGTK], dim=-1), x_BTD[:, None], encoding.dims.layer)
        k_BGTK, v_BGTK = both.split([k_BGTK.shape[-1], v_BGTK.shape[-1]], dim=-1)
        return k_BGTK, v_BGTK, inputs[:, 0]
