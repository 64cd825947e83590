"""GGUF files of llama.cpp: the configuration and the weights of the model that they hold.

The package `gguf` reads the file, expands its weights and knows what each is called there. The rows
of `FAMILIES` say what is particular to a family; metadata have the names of gguf's `Keys`. What the
file does not say is a constant of llama.cpp's, and stands here. Source: llama.cpp's conversion and
`llama_model::load_hparams`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["FAMILIES", "GgufFile"]


class Metadata:
    """What a file says of its model, by gguf's names without the architecture."""

    def __init__(
        self, fields: Mapping[str, Any], tensors: Mapping[str, Any], stored: Mapping[str, Any]
    ) -> None:
        self._fields, self.tensors, self._stored = fields, tensors, stored
        self.architecture = str(fields.get("general.architecture", ""))

    def get(self, name: str, default: Any = None) -> Any:
        """None of the architecture's own: of the file."""
        return self._fields.get(f"{self.architecture}.{name}", self._fields.get(name, default))

    def has(self, suffix: str) -> bool:
        """Whether there is a tensor whose name ends so."""
        return any(name.endswith(suffix) for name in self._stored)

    def rows(self, name: str) -> int | None:
        """Of a matrix; None if there is none of that name."""
        return int(self._stored[name].shape[-1]) if name in self._stored else None

    @property
    def layers(self) -> int:
        """Without those that guess tokens ahead."""
        return int(self.get("block_count")) - int(self.get("nextn_predict_layers", 0))

    def by_layer(self, name: str) -> list[Any]:
        """A number of each layer, where the file may have one for all."""
        value = self.get(name)
        return list(value) if isinstance(value, Sequence) else [value] * self.layers

    @property
    def head_dim(self) -> int:
        known = self.get("attention.key_length")
        return int(known or self.get("embedding_length") // self.get("attention.head_count"))


OwnWeight = Callable[["GgufFile", str], torch.Tensor | None]


@dataclass(frozen=True)
class Family:
    """model_type: of `transformers`. values: of the configuration, beside or in place of those that
    all have.

    has_permuted_heads: in each head of queries and keys, the two halves of a position's pairs lie
    side by side. norm_offset: what norms' weights are more than the model's. has_own_factors: the
    configuration has what rotary frequencies are divided by. weight: a weight of the model that
    is otherwise in the file, by its name; None: it is as others are.
    """

    model_type: str
    values: Callable[[Metadata], dict[str, Any]] = lambda of: {}
    has_permuted_heads: bool = False
    norm_offset: float = 0.0
    has_own_factors: bool = False
    weight: OwnWeight | None = None


def _llama(of: Metadata) -> dict[str, Any]:
    if not of.get("expert_count"):
        return {}
    return {"model_type": "mixtral", **_experts(of, "num_local_experts")}


def _experts(of: Metadata, count: str) -> dict[str, Any]:
    return {count: of.get("expert_count"), "num_experts_per_tok": of.get("expert_used_count")}


def _qwen_moe(of: Metadata) -> dict[str, Any]:
    return {
        **_experts(of, "num_experts"),
        "moe_intermediate_size": of.get("expert_feed_forward_length"),
        "shared_expert_intermediate_size": of.get("expert_shared_feed_forward_length"),
        "norm_topk_prob": of.architecture == "qwen3moe",
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _qwen3_5(of: Metadata) -> dict[str, Any]:
    """Layers without attention have the gated delta rule."""
    interval, heads = of.get("full_attention_interval", 4), of.get("ssm.time_step_rank")
    is_linear = [i % interval != interval - 1 for i in range(of.layers)]
    is_linear = of.get("attention.recurrent_layers", is_linear)[: of.layers]
    positions = _positions(of)
    positions["partial_rotary_factor"] = of.get("rope.dimension_count") / of.head_dim
    positions["mrope_section"] = list(of.get("rope.dimension_sections", []))[:3]
    values = {
        "rope_parameters": positions,
        "partial_rotary_factor": positions["partial_rotary_factor"],
        "layer_types": ["linear_attention" if one else "full_attention" for one in is_linear],
        "linear_conv_kernel_dim": of.get("ssm.conv_kernel"),
        "linear_key_head_dim": of.get("ssm.state_size"),
        "linear_num_key_heads": of.get("ssm.group_count"),
        "linear_value_head_dim": of.get("ssm.inner_size") // heads,
        "linear_num_value_heads": heads,
    }
    if of.get("expert_count"):
        values |= _experts(of, "num_experts")
        values["moe_intermediate_size"] = of.get("expert_feed_forward_length")
        values["shared_expert_intermediate_size"] = of.get("expert_shared_feed_forward_length")
    return values


def _qwen3_5_weight(file: GgufFile, name: str) -> torch.Tensor | None:
    """The heads of values that share a key lie side by side in the model; in the file the first
    ones of all keys, then the second ones."""
    match = re.search(r"\.linear_attn\.(\w+)", name)
    if match is None:
        return None
    found = _state_weight(file, name)
    if found is None:
        found = file.expanded(name)
    kind, of = match[1], file.metadata
    if found is None or kind == "norm":
        return found
    keys, values = of.get("ssm.group_count"), of.get("ssm.time_step_rank")
    is_scalar = kind in ("in_proj_a", "in_proj_b", "A_log", "dt_bias")
    own = values if is_scalar else of.get("ssm.inner_size")
    dim = 1 if kind == "out_proj" else 0
    before = found.shape[dim] - own  # queries and keys
    heads = torch.unflatten(
        found.narrow(dim, before, own), dim, [values // keys, keys, own // values]
    )
    parts = heads.transpose(dim, dim + 1).flatten(dim, dim + 2)
    return torch.cat([found.narrow(dim, 0, before), parts], dim)


def _gemma(of: Metadata) -> dict[str, Any]:
    """Scores are divided by the root of a head's width, in the models of 27B by another one's."""
    is_largest = of.get("block_count") == {"gemma2": 46, "gemma3": 62}[of.architecture]
    width = of.get("embedding_length") // of.get("attention.head_count")
    return {
        "query_pre_attn_scalar": width if is_largest else of.head_dim,
        "attn_logit_softcapping": of.get("attn_logit_softcapping"),
        "final_logit_softcapping": of.get("final_logit_softcapping"),
    }


def _shared_keys(of: Metadata) -> dict[str, Any]:
    """Of Gemma 3n and 4: layers that attend to another one's keys, embeddings for each layer."""
    return {
        "rope_parameters": _positions_by_kind(of),
        "num_kv_shared_layers": of.get("attention.shared_kv_layers"),
        "final_logit_softcapping": of.get("final_logit_softcapping"),
        "hidden_size_per_layer_input": of.get("embedding_length_per_layer_input"),
        "vocab_size_per_layer_input": of.rows("per_layer_token_embd.weight"),
        **_alternating(of),
    }


def _gemma3n(of: Metadata) -> dict[str, Any]:
    """The file has, in place of each share of zeros, by how many deviations a number is above the
    mean to be none of them."""
    scales = torch.tensor(of.get("activation_sparsity_scale"), dtype=torch.float64)
    return {
        **_shared_keys(of),
        "intermediate_size": of.by_layer("feed_forward_length"),
        "activation_sparsity_pattern": torch.special.ndtr(scales).tolist(),
        "altup_active_idx": of.get("altup.active_idx"),
        "altup_num_inputs": of.get("altup.num_inputs"),
        "laurel_rank": of.rows("blk.0.laurel_l.weight"),
    }


def _gemma4(of: Metadata) -> dict[str, Any]:
    """Layers without a window have heads of another depth, of which a part is rotated: the others
    are divided by what is no frequency. Widths of networks that differ are twice the first one."""
    shared, kinds = _shared_keys(of), _alternating(of)["layer_types"]
    full, short = kinds.index("full_attention"), kinds.index("sliding_attention")
    factors = of.tensors["rope_freqs.weight"]
    widths, heads = of.by_layer("feed_forward_length"), of.by_layer("attention.head_count_kv")
    part = int((factors == 1).sum()) / len(factors)
    positions = {"rope_type": "proportional", "partial_rotary_factor": part}
    shared["rope_parameters"]["full_attention"] |= positions
    return {
        **shared,
        "head_dim": of.get("attention.key_length_swa"),
        "global_head_dim": of.get("attention.key_length"),
        "num_key_value_heads": heads[short],
        "num_global_key_value_heads": heads[full],
        "attention_k_eq_v": not of.has(f"blk.{full}.attn_v.weight"),
        "intermediate_size": widths[0],
        "use_double_wide_mlp": len(set(widths)) > 1,
        "enable_moe_block": bool(of.get("expert_count")),
        "num_experts": of.get("expert_count"),
        "top_k_experts": of.get("expert_used_count"),
        "moe_intermediate_size": of.get("expert_feed_forward_length"),
    }


def _gemma3n_weight(file: GgufFile, name: str) -> torch.Tensor | None:
    """Projections between streams are one tensor."""
    match = re.fullmatch(r"(.*altup_(?:unembed_)?projections)\.(\d+)(\.weight)", name)
    all_of_them = None if match is None else file.expanded(match[1] + match[3])
    return None if match is None or all_of_them is None else all_of_them[int(match[2])]


def _gemma3(of: Metadata) -> dict[str, Any]:
    return {**_gemma(of), "rope_parameters": _positions_by_kind(of)}


def _positions_by_kind(of: Metadata) -> dict[str, Any]:
    """Layers with a window have frequencies of their own."""
    local = of.get("rope.freq_base_swa", 10000.0)
    return {
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
        "full_attention": _positions(of),
    }


def _phi3(of: Metadata) -> dict[str, Any]:
    rotated = of.get("rope.dimension_count", of.head_dim)
    positions = {**_positions(of), "partial_rotary_factor": rotated / of.head_dim}
    before = of.get("rope.scaling.original_context_length", of.get("context_length"))
    factors = {
        f"{kind}_factor": of.tensors[f"rope_factors_{kind}.weight"].tolist()
        for kind in ("long", "short")
        if f"rope_factors_{kind}.weight" in of.tensors
    }
    if factors:
        positions |= {"rope_type": "longrope", **factors}
        positions |= {"original_max_position_embeddings": before}
        positions |= {"factor": of.get("context_length") / before}
    return {
        "sliding_window": of.get("attention.sliding_window") or None,
        "original_max_position_embeddings": before,
        "partial_rotary_factor": rotated / of.head_dim,
        "rope_parameters": positions,
    }


def _mistral3(of: Metadata) -> dict[str, Any]:
    """Ministral 3 scales queries by their positions, too; Mistral Small 3 has plain ones."""
    scale = of.get("attention.temperature_scale")
    if scale is None:
        return {}
    more = {"mscale": 1.0, "mscale_all_dim": of.get("rope.scaling.yarn_log_multiplier", 1.0)}
    return {
        "model_type": "ministral3",
        "rope_parameters": {**_positions(of), **more, "llama_4_scaling_beta": scale},
    }


def _granite(of: Metadata) -> dict[str, Any]:
    return {
        "attention_multiplier": of.get("attention.scale", of.head_dim**-0.5),
        "embedding_multiplier": of.get("embedding_scale", 1.0),
        "residual_multiplier": of.get("residual_scale", 1.0),
        "logits_scaling": of.get("logit_scale", 1.0),
    }


def _granite_experts(of: Metadata) -> dict[str, Any]:
    values = {**_granite(of), **_experts(of, "num_local_experts")}
    shared = of.get("expert_shared_feed_forward_length")
    if shared:
        values |= {"model_type": "granitemoeshared", "shared_intermediate_size": shared}
    return values


def _granite_hybrid(of: Metadata) -> dict[str, Any]:
    """Layers without keys are state space models (Mamba 2). Attention knows no positions, but in
    models that were trained with them."""
    heads = of.get("attention.head_count_kv")
    width = of.get("expert_shared_feed_forward_length", of.get("feed_forward_length"))
    return {
        **_granite(of),
        **_experts(of, "num_local_experts"),
        "num_local_experts": of.get("expert_count", 0),
        "shared_intermediate_size": width,
        "num_key_value_heads": max(heads),
        "layer_types": ["attention" if count else "mamba" for count in heads],
        "position_embedding_type": "rope" if of.get("rope.scaling.finetuned") else "nope",
        "mamba_expand": of.get("ssm.inner_size") // of.get("embedding_length"),
        **_mamba2(of),
    }


def _falcon_h1(of: Metadata) -> dict[str, Any]:
    """What the model multiplies by is in the file's weights."""
    factors = ("attention_in", "attention_out", "ssm_in", "ssm_out", "key", "embedding", "lm_head")
    return {
        **{f"{of_what}_multiplier": 1.0 for of_what in factors},
        "mlp_multipliers": [1.0] * 2,
        "ssm_multipliers": [1.0] * 5,
        "mamba_d_ssm": of.get("ssm.inner_size"),
        "mamba_rms_norm": of.has("ssm_norm.weight"),
        "mamba_norm_before_gate": False,
        **_mamba2(of),
    }


def _mamba2(of: Metadata) -> dict[str, Any]:
    heads = of.get("ssm.time_step_rank")
    return {
        "mamba_n_heads": heads,
        "mamba_d_head": of.get("ssm.inner_size") // heads,
        "mamba_d_state": of.get("ssm.state_size"),
        "mamba_n_groups": of.get("ssm.group_count"),
        "mamba_d_conv": of.get("ssm.conv_kernel"),
        "mamba_conv_bias": of.has("ssm_conv1d.bias"),
        "mamba_proj_bias": of.has("ssm_in.bias"),
    }


def _state_weight(file: GgufFile, name: str) -> torch.Tensor | None:
    """Rates of decay are logarithms in the model."""
    stem, _, kind = name.rpartition(".")
    if kind == "A_log":
        rates = file.expanded(name)
        return None if rates is None else torch.log(-rates)
    return file.expanded(f"{stem}.dt_proj.bias") if kind == "dt_bias" else None


def _granite_weight(file: GgufFile, name: str) -> torch.Tensor | None:
    """Gates and what they let through are one tensor in the model."""
    match = re.search(r"layers\.(\d+)\.(shared_mlp|block_sparse_moe)\.(.*)", name)
    if match is None:
        return _state_weight(file, name)
    layer, block, kind = match.groups()
    parts = {"input_linear.weight": ["gate", "up"], "experts.gate_up_proj": ["gate", "up"]}
    if kind == "router.weight":
        return file.expanded(f"blk.{layer}.ffn_gate_inp.weight")
    for suffix in ["_exps"] if block == "block_sparse_moe" else ["_shexp", ""]:
        found = [
            file.expanded(f"blk.{layer}.ffn_{part}{suffix}.weight")
            for part in parts.get(kind, ["down"])
        ]
        tensors = [one for one in found if one is not None]
        if len(tensors) == len(found):
            return torch.cat(tensors, -2)
    return None


def _alternating(of: Metadata) -> dict[str, Any]:
    """Which layers have a window, where the file says."""
    pattern = of.get("attention.sliding_window_pattern")
    if not isinstance(pattern, (list, tuple)):
        return {}
    kinds = ["sliding_attention" if is_short else "full_attention" for is_short in pattern]
    return {"layer_types": kinds}


def _olmo(of: Metadata) -> dict[str, Any]:
    kind = {"model_type": "olmo3"} if of.get("attention.sliding_window") else {}
    return {**kind, **_alternating(of)}


def _gpt_oss(of: Metadata) -> dict[str, Any]:
    positions = {"truncate": False, "beta_fast": 32.0, "beta_slow": 1.0, **_positions(of)}
    return {
        **_experts(of, "num_local_experts"),
        "intermediate_size": of.get("expert_feed_forward_length"),
        "rope_parameters": positions,
    }


def _lfm2(of: Metadata) -> dict[str, Any]:
    heads = of.get("attention.head_count_kv")
    return {
        "num_key_value_heads": max(heads),
        "layer_types": ["full_attention" if count else "conv" for count in heads],
        "conv_L_cache": of.get("shortconv.l_cache"),
        "norm_eps": of.get("attention.layer_norm_rms_epsilon"),
        "block_auto_adjust_ff_dim": False,
    }


def _cohere(of: Metadata) -> dict[str, Any]:
    windows = {}
    if of.architecture == "cohere2":  # every fourth layer has none, where the file says nothing
        kinds = ["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(of.layers)]
        windows = {"layer_types": kinds, **_alternating(of)}
    return {
        "layer_norm_eps": of.get("attention.layer_norm_epsilon"),
        "logit_scale": of.get("logit_scale"),
        "use_qk_norm": of.has("blk.0.attn_q_norm.weight"),
        **windows,
    }


def _lfm2_moe(of: Metadata) -> dict[str, Any]:
    return {
        **_lfm2(of),
        **_experts(of, "num_experts"),
        "moe_intermediate_size": of.get("expert_feed_forward_length"),
        "num_dense_layers": of.get("leading_dense_block_count"),
        "use_expert_bias": of.has(".exp_probs_b.bias") or of.has(".exp_probs_b"),
    }


FAMILIES: Mapping[str, Family] = {
    "llama": Family("llama", _llama, has_permuted_heads=True),
    "qwen2": Family("qwen2"),
    "qwen2moe": Family("qwen2_moe", _qwen_moe),
    "qwen3": Family("qwen3"),
    "qwen3moe": Family("qwen3_moe", _qwen_moe),
    "qwen35": Family("qwen3_5_text", _qwen3_5, norm_offset=1.0, weight=_qwen3_5_weight),
    "qwen35moe": Family("qwen3_5_moe_text", _qwen3_5, norm_offset=1.0, weight=_qwen3_5_weight),
    "gemma": Family("gemma", norm_offset=1.0),
    "gemma2": Family("gemma2", _gemma, norm_offset=1.0),
    "gemma3": Family("gemma3_text", _gemma3, norm_offset=1.0),
    "gemma3n": Family("gemma3n_text", _gemma3n, weight=_gemma3n_weight),
    "gemma4": Family("gemma4_text", _gemma4, has_own_factors=True),
    "phi3": Family("phi3", _phi3),
    "smollm3": Family("smollm3", has_permuted_heads=True),
    "granite": Family("granite", _granite, has_permuted_heads=True),
    "granitemoe": Family(
        "granitemoe", _granite_experts, has_permuted_heads=True, weight=_granite_weight
    ),
    "granitehybrid": Family(
        "granitemoehybrid", _granite_hybrid, has_permuted_heads=True, weight=_granite_weight
    ),
    "falcon-h1": Family("falcon_h1", _falcon_h1, weight=_state_weight),
    "olmo2": Family("olmo2", _olmo),
    "exaone4": Family("exaone4", _alternating),
    "hunyuan-dense": Family("hunyuan_v1_dense"),
    "gpt-oss": Family("gpt_oss", _gpt_oss),
    "lfm2": Family("lfm2", _lfm2),
    "lfm2moe": Family("lfm2_moe", _lfm2_moe),
    "command-r": Family("cohere", _cohere),
    "cohere2": Family("cohere2", _cohere),
    "arcee": Family("arcee", has_permuted_heads=True),
    "ernie4_5": Family("ernie4_5"),
    "seed_oss": Family("seed_oss"),
    "olmoe": Family("olmoe", _qwen_moe),
    "glm4": Family("glm4"),
    "mistral3": Family("mistral", _mistral3, has_permuted_heads=True),
}
"""By `general.architecture`. Others are read by `transformers`' own loader, if it knows them."""


class GgufFile:
    """A file, or all that a model is split into, given the first.

    config: as in a config.json; None if the file is of none of `FAMILIES`; ValueError if positions
    are scaled in a way that is not known. frequencies: what each pair's frequency of rotary
    positions is divided by, [pairs]; None: by 1. scales_positions: in whatever way.
    tokens_are_split: the name of the way in which the tokenizer splits a text before it merges;
    None if it does not. metadata: what the file says.
    """

    def __init__(self, path: Path) -> None:
        import gguf

        fields: dict[str, Any] = {}
        self._stored: dict[str, Any] = {}
        for reader in [gguf.GGUFReader(part) for part in reversed(_parts(path))]:
            fields |= {
                name: field.contents()
                for name, field in reader.fields.items()
                if not name.startswith(("tokenizer.", "GGUF."))
                or name.endswith(("_token_id", "ggml.pre", "ggml.model"))
            }
            self._stored |= {tensor.name: tensor for tensor in reader.tensors}
        factors = {
            name: torch.from_numpy(tensor.data.copy())
            for name, tensor in self._stored.items()
            if name.startswith("rope_")
        }
        of = Metadata(fields, factors, self._stored)
        self.architecture, self._family = of.architecture, FAMILIES.get(of.architecture)
        own = self._family is not None and self._family.has_own_factors
        self.frequencies = None if own else factors.get("rope_freqs.weight")
        self.scales_positions = bool(factors) or of.get("rope.scaling.type", "none") != "none"
        is_merged = of.get("tokenizer.ggml.model") == "gpt2"
        self.tokens_are_split = of.get("tokenizer.ggml.pre", "default") if is_merged else None
        self.metadata = of
        self._taken: set[str] = set()

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """See the class."""
        if self._family is None:
            return None
        return _config(self.metadata, self._family, self._stored)

    @cached_property
    def _names(self) -> Any:
        """From the names that modules have to the file's."""
        import gguf

        kind = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == self.architecture)
        return gguf.get_tensor_name_map(kind, self.metadata.layers)

    def weights(self, shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Those of a model's weights that are in the file, in the shapes that it wants.

        ValueError if they are of another size, or the file has more than the model takes.
        """
        self._taken = set()
        for name, shape in shapes.items():
            found = self._weight(name)
            if found is None:
                continue
            if found.numel() != torch.Size(shape).numel():
                raise ValueError(
                    f"[checkpoint] {name} must have {list(shape)}; got {list(found.shape)}"
                )
            yield name, found.reshape(tuple(shape))
        left = sorted(n for n in self._stored if n not in self._taken and not self._is_unused(n))
        if left:
            raise ValueError(
                f"[checkpoint] the model must take all that a file has; got {len(left)} that "
                f"{self._family and self._family.model_type} does not, {left[0]} first; "
                f"try a folder of safetensors"
            )

    def _is_unused(self, name: str) -> bool:
        """Tables of positions, layers that guess tokens ahead, and the keys and values of layers
        that attend to another one's."""
        if name.startswith("rope_"):
            return True
        match = re.fullmatch(r"blk\.(\d+)\.(.*)", name)
        if match is None:
            return False
        layer, layers = int(match[1]), self.metadata.layers
        shared = int(self.metadata.get("attention.shared_kv_layers", 0))
        has_no_keys = layer >= layers - shared
        is_key = match[2] in ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")
        return layer >= layers or (has_no_keys and is_key)

    def _weight(self, name: str) -> torch.Tensor | None:
        assert self._family is not None
        assert self.config is not None
        own = None if self._family.weight is None else self._family.weight(self, name)
        if own is not None:
            return own
        if ".experts." in name:
            return self._experts(name)
        found = self.expanded(name)
        if found is None:
            return None
        if self._family.norm_offset and name.endswith("norm.weight"):
            return found - self._family.norm_offset
        if self._family.has_permuted_heads and re.search(r"\.[qk]_proj\.", name):
            kind = "num_attention_heads" if ".q_proj." in name else "num_key_value_heads"
            heads = self.config[kind]
            pairs = found.reshape(heads, -1, 2, *found.shape[1:])
            return pairs.transpose(1, 2).reshape(found.shape)
        return found

    def _experts(self, name: str) -> torch.Tensor | None:
        """All experts' in one tensor, gates and what they let through side by side: in halves, or
        in turns and with inputs first."""
        stem, _, kind = name.rpartition(".")
        suffix = "bias" if kind.endswith("_bias") else "weight"
        kind = kind.removesuffix("_bias")
        parts = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else [kind]
        found = [self.expanded(f"{stem}.{part}.{suffix}") for part in parts]
        if any(one is None for one in found):
            return None
        tensors = [one for one in found if one is not None]
        if self.architecture != "gpt-oss":
            return torch.cat(tensors, 1)
        if suffix == "weight":
            tensors = [one.transpose(1, 2) for one in tensors]
        return torch.stack(tensors, -1).flatten(-2) if len(tensors) == 2 else tensors[0]

    def expanded(self, name: str) -> torch.Tensor | None:
        """A tensor by a name that gguf knows, in float32; None if the file has none."""
        import gguf

        stem, _, suffix = name.rpartition(".")
        called = self._names.get_name(stem) if suffix in ("weight", "bias") else None
        names = [f"{called}.{suffix}"]
        if called is None:
            called = self._names.get_name(name)
            names = [f"{called}", f"{called}.weight", f"{called}.bias"]
        tensor = next((self._stored[one] for one in names if one in self._stored), None)
        if tensor is None:
            return None
        self._taken.add(tensor.name)
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        return torch.from_numpy(np.array(values, np.float32)).reshape(tensor.shape.tolist()[::-1])


def _parts(path: Path) -> list[Path]:
    """`model-00001-of-00003.gguf` and those that follow; a file alone is itself."""
    match = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if match is None:
        return [path]
    stem, _, count = match.groups()
    parts = [path.with_name(f"{stem}-{i:05d}-of-{count}.gguf") for i in range(1, int(count) + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise FileNotFoundError(f"[checkpoint] all parts must be there; got no {missing[0]}")
    return parts


def _config(of: Metadata, family: Family, stored: Mapping[str, Any]) -> dict[str, Any]:
    """As in a config.json: what all families have, then what is the family's own."""
    heads = of.get("attention.head_count")
    values = {
        "hidden_size": of.get("embedding_length"),
        "num_hidden_layers": of.layers,
        "intermediate_size": of.get("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": of.get("attention.head_count_kv", heads),
        "head_dim": of.head_dim,
        "rms_norm_eps": of.get("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": of.get("context_length"),
        "vocab_size": int(stored["token_embd.weight"].shape[-1]),
        "tie_word_embeddings": "output.weight" not in stored,
        "sliding_window": of.get("attention.sliding_window"),
        "rope_parameters": _positions(of),
    }
    if family.model_type == "llama":
        for name, of_which in (("attention", "attn_output"), ("mlp", "ffn_down")):
            values[f"{name}_bias"] = f"blk.0.{of_which}.bias" in stored
    values |= {"model_type": family.model_type, **family.values(of)}
    # Defaults of `transformers` are those of one vocabulary: no number is better.
    tokens = {
        f"{name}_token_id": of.get(f"tokenizer.ggml.{key}_token_id")
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    known = {name: value for name, value in values.items() if value is not None}
    return {**known, **tokens}


def _positions(of: Metadata) -> dict[str, Any]:
    """`rope_parameters`: frequencies and what scales them."""
    found = {"rope_type": "default", "rope_theta": of.get("rope.freq_base", 10000.0)}
    kind, factor = of.get("rope.scaling.type", "none"), of.get("rope.scaling.factor")
    if kind in ("none", "longrope"):
        return found  # the factors of longrope are tensors
    if kind not in ("linear", "yarn") or factor is None:
        raise ValueError(
            f"[checkpoint] positions must be scaled by none, linear, yarn or longrope; got {kind}"
        )
    found |= {"rope_type": kind, "factor": factor}
    if kind == "yarn":
        found["original_max_position_embeddings"] = of.get("rope.scaling.original_context_length")
        for name, key in (
            ("attention_factor", "rope.scaling.yarn_attn_factor"),
            ("beta_fast", "rope.scaling.yarn_beta_fast"),
            ("beta_slow", "rope.scaling.yarn_beta_slow"),
        ):
            if of.get(key) is not None:
                found[name] = of.get(key)
    return found
