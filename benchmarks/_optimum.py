"""One model through optimum-executorch and nothing else: what its users write.

    python _optimum.py CASE FOLDER                          over ExecuTorch
    python -m edgewise.compat _optimum.py CASE FOLDER       over edgewise

Makes the checkpoint in FOLDER if it is not there, exports it, runs it, and prints JSON: seconds of
the export and of a token, and the tokens that the file and eager PyTorch choose (of models without
tokens, the largest difference of the results).
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from optimum.executorch import (
    ExecuTorchModelForCausalLM,
    ExecuTorchModelForImageClassification,
    ExecuTorchModelForMaskedLM,
    ExecuTorchModelForSpeechSeq2Seq,
)
from optimum.exporters.executorch.convert import export_to_executorch
from optimum.exporters.executorch.task_registry import discover_tasks, task_registry

TOKENS = 24
_TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
}
_TEXT = {
    **_TINY,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SMOLLM2 = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
_WHISPER = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": 512,
    "max_target_positions": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_CACHES = {"use_custom_sdpa": True, "use_custom_kv_cache": True}
_INT4 = {"qlinear": "8da4w", "qembedding": "8w"}

# Configuration | its options | task | options of the export.
CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "ViT": ("ViTConfig", {**_TINY, "image_size": 224}, "image-classification", {}),
    "BERT": ("BertConfig", _TINY, "fill-mask", {}),
    "Whisper": ("WhisperConfig", _WHISPER, "automatic-speech-recognition", {}),
    "Llama": ("LlamaConfig", _TEXT, "text-generation", {}),
    "Llama, custom caches": ("LlamaConfig", _TEXT, "text-generation", _CACHES),
    "Qwen3, custom caches": ("Qwen3Config", _TEXT, "text-generation", _CACHES),
    "Qwen3, 8da4w": ("Qwen3Config", _TEXT, "text-generation", {"qlinear": "8da4w"}),
    "Qwen3, 4w": ("Qwen3Config", _TEXT, "text-generation", {"qlinear": "4w"}),
    "SmolLM3, custom caches": ("SmolLM3Config", _TEXT, "text-generation", _CACHES),
    "Phi-3, custom caches": ("Phi3Config", _TEXT, "text-generation", _CACHES),
    "Gemma 3, custom caches": (
        "Gemma3TextConfig",
        {**_TEXT, "sliding_window": 32, "sliding_window_pattern": 2},
        "text-generation",
        _CACHES,
    ),
    "SmolLM2-135M's shape, 8da4w, custom caches": (
        "LlamaConfig",
        _SMOLLM2,
        "text-generation",
        {**_CACHES, **_INT4},
    ),
}
_EAGER = {
    "image-classification": transformers.AutoModelForImageClassification,
    "fill-mask": transformers.AutoModelForMaskedLM,
    "automatic-speech-recognition": transformers.AutoModelForSpeechSeq2Seq,
    "text-generation": transformers.AutoModelForCausalLM,
}
_PROMPT = 20


def main(case: str, folder: Path) -> dict[str, Any]:
    """Exports and runs a case."""
    config, shape, task, options = CASES[case]
    checkpoint, exported = folder / "checkpoint", folder / "exported"
    if not checkpoint.exists():
        torch.manual_seed(0)
        made = getattr(transformers, config)(**shape)
        _EAGER[task].from_config(made).save_pretrained(checkpoint)
        if task == "automatic-speech-recognition":
            transformers.WhisperFeatureExtractor().save_pretrained(checkpoint)
    exported.mkdir(parents=True, exist_ok=True)
    discover_tasks()
    if task == "text-generation":
        options = {**options, "max_seq_len": 128}
    model = task_registry.get(task)(str(checkpoint), **options)
    start = time.perf_counter()
    export_to_executorch(model=model, task=task, recipe="xnnpack", output_dir=str(exported))
    found: dict[str, Any] = {"export": time.perf_counter() - start}
    torch.manual_seed(1)
    # Quantized layers are compared with the same layers in eager PyTorch.
    eager = model.model if "qlinear" in options else _EAGER[task].from_pretrained(checkpoint).eval()
    with torch.no_grad():
        run = {
            "image-classification": _images,
            "fill-mask": _masks,
            "automatic-speech-recognition": _speech,
            "text-generation": _text,
        }[task]
        return {**found, **run(exported, eager)}


def _images(exported: Path, eager: Any) -> dict[str, Any]:
    x = torch.randn(1, 3, 224, 224)
    got = ExecuTorchModelForImageClassification.from_pretrained(exported).forward(x)
    return {"error": float((got - eager(x).logits).abs().max())}


def _masks(exported: Path, eager: Any) -> dict[str, Any]:
    x = torch.randint(5, 500, (1, 20))
    mask = torch.ones_like(x)
    got = ExecuTorchModelForMaskedLM.from_pretrained(exported).forward(x, mask)
    return {"error": float((got - eager(x, mask).logits).abs().max())}


def _speech(exported: Path, eager: Any) -> dict[str, Any]:
    features = torch.randn(1, 80, 3000)
    wanted = eager.generate(features, max_new_tokens=TOKENS, do_sample=False, eos_token_id=None)[
        0
    ].tolist()
    file = ExecuTorchModelForSpeechSeq2Seq.from_pretrained(exported)
    start = time.perf_counter()
    got = file.generate(features, max_seq_len=TOKENS)
    return _tokens(got, wanted, time.perf_counter() - start)


def _text(exported: Path, eager: Any) -> dict[str, Any]:
    ids = torch.randint(5, 500, (1, _PROMPT))
    options = {"max_new_tokens": TOKENS, "do_sample": False, "eos_token_id": None}
    wanted = eager.generate(ids, **options)[0, _PROMPT:].tolist()
    file = ExecuTorchModelForCausalLM.from_pretrained(exported)
    file.generate(ids[0].tolist(), max_seq_len=_PROMPT + 2)
    start = time.perf_counter()
    got = file.generate(ids[0].tolist(), max_seq_len=_PROMPT + TOKENS)
    return _tokens(got, wanted, time.perf_counter() - start)


def _tokens(got: list[int], wanted: list[int], seconds: float) -> dict[str, Any]:
    pairs = list(zip(got, wanted, strict=False))
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return {"same": same, "of": len(pairs), "token": seconds / max(len(got), 1)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("\n" + json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
