"""GGUF files of each family that `edgewise llm export` reads, against llama.cpp.

A small model with random weights is converted by llama.cpp's own converter; the file is read again.

- reading: largest difference of a logit between the model that was read and the one converted.
- llama.cpp: between the model that was read and llama.cpp's runtime, which keeps keys and values in
  float16; and for how many of the 45 tokens both choose the same next one.

Both are in units of the largest logit. The exit code is 0 if every reading is below 1e-5.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import add_cache_options, report
from _environments import PACKAGES, python_of
from llm_architectures import prompt_of, small_model

VOCABULARY = 512


def _positions(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


_YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
_SCALED = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_QUERIES = {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
_BETAS = {"beta_fast": 32.0, "beta_slow": 1.0}
_GEMMA = {"head_dim": 256, "query_pre_attn_scalar": 256, "tie_word_embeddings": True}
_WINDOWS = ["full_attention" if i % 5 == 4 else "sliding_attention" for i in range(20)]
_GEMMA_N = {  # some are constants of llama.cpp, whose deviations are those of one number less
    "num_hidden_layers": 20,
    "num_kv_shared_layers": 0,
    "layer_types": _WINDOWS,
    "intermediate_size": [4096] * 20,
    "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 10,
    "laurel_rank": 64,
    "hidden_size_per_layer_input": 256,
    "tie_word_embeddings": True,
}
_GEMMA_4 = {
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 1e6,
        },
    },
    "tie_word_embeddings": True,
}
_GRANITE_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64}
_GRANITE_4 = {
    "position_embedding_type": "nope",
    "num_experts_per_tok": 0,
    "intermediate_size": 128,
    "tie_word_embeddings": True,
}
_FALCON_H1 = {
    "key_multiplier": 0.5,
    "embedding_multiplier": 2.0,
    "lm_head_multiplier": 0.5,
    "ssm_multipliers": [0.5, 0.75, 1.25, 1.5, 0.9],
    "mlp_multipliers": [0.8, 1.2],
    "mamba_rms_norm": True,
    "mamba_norm_before_gate": False,
}
_QWEN3_5 = {"head_dim": 256, "tie_word_embeddings": True}
_GLOBAL = {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}
_LOCAL = {"rope_type": "default", "rope_theta": 10000.0}
_WHOLE = {"sliding_window": None}
_COHERE2 = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "tie_word_embeddings": True,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("llama", {}),
    "Llama 3": ("llama", _positions("llama3", **_YARN, **_SCALED)),
    "Llama, linear": ("llama", _positions("linear", factor=4.0)),
    "Mixtral": ("mixtral", _WHOLE),
    "Mistral": ("mistral", _WHOLE),
    "Ministral 3": ("ministral3", {**_WHOLE, **_positions("yarn", **_YARN, **_BETAS, **_QUERIES)}),
    "Qwen2": ("qwen2", {}),
    "Qwen2, YaRN": ("qwen2", _positions("yarn", **_YARN)),
    "Qwen2-MoE": (
        "qwen2_moe",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
        },
    ),
    "Qwen3": ("qwen3", {}),
    "Qwen3-MoE": ("qwen3_moe", {"norm_topk_prob": True}),
    "Qwen3.5": ("qwen3_5_text", _QWEN3_5),
    "Qwen3.5-MoE": ("qwen3_5_moe_text", _QWEN3_5),
    "Gemma": ("gemma", {"head_dim": 256, "tie_word_embeddings": True}),
    "Gemma 2": ("gemma2", _GEMMA),
    "Gemma 3": (
        "gemma3_text",
        {
            **_GEMMA,
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
            "rope_parameters": {"sliding_attention": _LOCAL, "full_attention": _GLOBAL},
        },
    ),
    "Gemma 3n": ("gemma3n_text", _GEMMA_N),
    "Gemma 4": ("gemma4_text", {**_GEMMA_4, "use_double_wide_mlp": True}),
    "Gemma 4, keys as values": (
        "gemma4_text",
        {**_GEMMA_4, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
    ),
    "Phi-3": ("phi3", _WHOLE),
    "SmolLM3": ("smollm3", {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}),
    "Granite": ("granite", {}),
    "Granite 3, experts": ("granitemoe", _GRANITE_EXPERTS),
    "Granite 3, a shared expert": (
        "granitemoeshared",
        {**_GRANITE_EXPERTS, "shared_intermediate_size": 96},
    ),
    "Granite 4": ("granitemoehybrid", _GRANITE_4),
    "Granite 4, experts": ("granitemoehybrid", {**_GRANITE_4, **_GRANITE_EXPERTS}),
    "OLMo2": ("olmo2", {}),
    "OLMo3": ("olmo3", {}),
    "OLMoE": ("olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    "EXAONE 4": ("exaone4", {}),
    "Hunyuan": ("hunyuan_v1_dense", {}),
    "gpt-oss": ("gpt_oss", {}),
    "LFM2": ("lfm2", {}),
    "LFM2-MoE": ("lfm2_moe", {"tie_word_embeddings": True}),
    "Command R": ("cohere", {"tie_word_embeddings": True}),
    "Command R7B": ("cohere2", _COHERE2),
    "Falcon-H1": ("falcon_h1", _FALCON_H1),
    "Arcee": ("arcee", {}),
    "ERNIE 4.5": ("ernie4_5", {}),
    "Seed-OSS": ("seed_oss", {}),
    "GLM-4": ("glm4", {}),
}


def sources(cache: Path) -> Path:
    """llama.cpp's, of the package that `_environments` names."""
    folder = cache / "frameworks" / "llama.cpp-sources"
    found = sorted(folder.glob("*/vendor/llama.cpp"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        package, option = PACKAGES["llama.cpp"]
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, option, "-d", str(folder), package], check=True)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        found = sorted(folder.glob("*/vendor/llama.cpp"))
    return found[0]


def model_of(kind: str, values: dict[str, Any]) -> Any:
    """A small one of the family, with these values in its config."""
    from edgewise.llm.architectures import Architecture, architecture_of

    known = architecture_of(kind)
    torch.manual_seed(0)
    small = {**(known.small if known else {}), **values}
    model = small_model(Architecture(kind, (kind,), "", small))
    model.tie_weights()
    return model


def row_of(name: str, python: str, converter: Path) -> dict[str, Any]:
    """Of the table that the script prints."""
    from edgewise.llm.export import load_model

    kind, values = MODELS[name]
    model = model_of(kind, {"head_dim": 16, **values})
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        _complete(Path(folder))
        file = f"{folder}/model.gguf"
        worker = str(Path(__file__).with_name("_gguf_llamacpp.py"))
        run([sys.executable, worker, "convert", str(converter), folder, file])
        found = load_model(file)
        text = prompt_of(model)
        with torch.no_grad():
            read, whole = (
                m(torch.tensor([text]), use_cache=False).logits[0].numpy() for m in (found, model)
            )
        most = np.abs(whole).max()
        row = {"family": name, "reading": float(np.abs(read - whole).max() / most)}
        try:
            run([python, worker, "logits", file, json.dumps(text), f"{folder}/logits.npy"])
        except RuntimeError as failure:
            return {**row, "llama.cpp": str(failure)[-60:], "next tokens": "-"}
        theirs = np.load(f"{folder}/logits.npy")
    same = int((theirs.argmax(-1) == read.argmax(-1)).sum())
    off = float(np.abs(theirs - read).max() / most)
    return {**row, "llama.cpp": off, "next tokens": f"{same} of {len(text)}"}


def _complete(folder: Path) -> None:
    """What the converter reads, too: a vocabulary, and names as before `transformers` 5."""
    words = {f"t{i}": i for i in range(VOCABULARY)}
    (folder / "tokenizer.json").write_text(
        json.dumps({"added_tokens": [], "model": {"vocab": words}})
    )
    config = json.loads((folder / "config.json").read_text())
    theta = (config.get("rope_parameters") or {}).get("rope_theta")
    if theta is not None:
        config["rope_theta"] = theta
    # As published ones say it.
    if config["model_type"] == "cohere2":
        config["rotary_pct"] = 1.0
    if config["model_type"] == "granitemoehybrid":
        known = {"linear_attention": "mamba", "full_attention": "attention"}
        config["layer_types"] = [known[kind] for kind in config["layer_types"]]
    (folder / "config.json").write_text(json.dumps(config))


def run(command: list[str]) -> None:
    """RuntimeError with the last line that it said, if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RuntimeError(said[-1] if said else f"exit code {done.returncode}")


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="model types; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    add_cache_options(parser, refresh=False)
    options = parser.parse_args()
    python, converter = python_of("llama.cpp", options.cache), sources(options.cache)
    rows = []
    for name, (kind, _) in MODELS.items():
        if options.names and kind not in options.names:
            continue
        rows.append(row_of(name, python, converter))
        print(rows[-1], file=sys.stderr, flush=True)
    report("GGUF: what is read, and what llama.cpp computes", rows, [], options.json)
    return int(any(row["reading"] > 1e-5 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
