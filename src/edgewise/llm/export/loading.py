"""Language models of `transformers`: with random weights, of a checkpoint, of a GGUF file."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch

from edgewise.llm.architectures import HEARING, SPEECH
from edgewise.llm.config import processor_settings, read_config
from edgewise.llm.export.gguf_models import FAMILIES, GgufFile
from edgewise.llm.export.mlx_weights import text_config
from edgewise.llm.export.parakeet import PARAKEETS, check_features
from edgewise.llm.export.sources import float_weights, open_gguf, quantization_of

__all__ = ["load_model", "media_of", "random_model", "text_part"]


def random_model(config: dict[str, Any], seed: int = 0, *, media: Collection[str] = ()) -> Any:
    """A causal language model with random weights, in float32.

    config: as in a config.json; a Llama's if it has no `model_type`. media: as of `load_model`.
    ValueError if the values do not go together, or are of no causal language model.
    """
    torch.manual_seed(seed)
    return _asked_part(_made_of(config, media), media).float().eval()


def _made_of(config: dict[str, Any], media: Collection[str] = ()) -> Any:
    """A model of a configuration, by `transformers`. ValueError as of `random_model`."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    values = {k: v for k, v in config.items() if k != "model_type"}
    kind = config.get("model_type", "llama")
    try:
        named: Any = AutoConfig
        return _class_for(kind, media).from_config(named.for_model(kind, **values))
    except (
        AttributeError,
        LookupError,
        RuntimeError,
        StrictDataclassError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    ) as failure:
        what = "Llama" if kind == "llama" else kind
        raise ValueError(f"[config] no {what} can be made of it: {failure}") from failure


def load_model(checkpoint: str | Path, *, media: Collection[str] = ()) -> Any:
    """The causal language model of a local directory as `save_pretrained` writes it, in float32;
    also of a quantized one (`packed.PACKINGS`), or of a GGUF file.

    media: "images", "audio": a model that also sees, or hears, as a whole, not the language model
    in it alone.

    FileNotFoundError without a config.json or weights in it; ValueError if it is another model or
    weights are missing; ModuleNotFoundError for a GGUF file without the package gguf.
    """
    directory = Path(checkpoint)
    if directory.is_file() and directory.suffix == ".gguf":
        if media:
            raise ValueError(
                f"[checkpoint] a GGUF file holds no part that sees or hears; got {checkpoint}"
            )
        return _load_gguf(directory)
    if not (directory / "config.json").is_file():
        raise FileNotFoundError(
            f"[checkpoint] must be a directory with config.json and weights, or a GGUF file; "
            f"got {checkpoint}"
        )
    config = read_config(str(directory))
    about = quantization_of(config)
    if config.get("model_type") in PARAKEETS:
        check_features(processor_settings(directory) or {})
    try:
        if about is not None:
            others = ("quantization", "quantization_config")
            values = {k: v for k, v in config.items() if k not in others}
            if about["quant_method"] == "mlx":
                values = text_config(values)
            model = _with_weights(
                _empty(values, media), float_weights(directory, about), checkpoint
            )
            _take_generation_config(model, directory)
            return _asked_part(model, media).eval()
        loader = _class_for(config.get("model_type", "llama"), media)
        model, report = loader.from_pretrained(
            directory, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    except FileNotFoundError:
        raise
    except OSError as failure:
        raise FileNotFoundError(f"[checkpoint] no weights in {checkpoint}: {failure}") from None
    except (RuntimeError, ValueError) as failure:
        if str(failure).startswith("["):
            raise
        raise ValueError(
            f"[checkpoint] must be of a causal language model; got {checkpoint}: "
            f"{str(failure).splitlines()[0]}"
        ) from failure
    _check_whole(report["missing_keys"], checkpoint)
    return _asked_part(model, media).eval()


def _load_gguf(path: Path) -> Any:
    """Whatever the types of its tensors are. ModuleNotFoundError without gguf; ValueError if the
    model is of no family that is known, or something is missing."""
    file = open_gguf(path)
    try:
        if file.config is None:
            return _load_by_transformers(file, path)
        made = _empty(file.config)
        shapes = {name: tuple(tensor.shape) for name, tensor in made.state_dict().items()}
        model = _with_weights(made, dict(file.weights(shapes)), path)
    except (AttributeError, LookupError, RuntimeError, TypeError, ZeroDivisionError) as error:
        raise ValueError(f"[checkpoint] no model in {path}: {error!r}") from error
    if file.frequencies is not None:
        for module in model.modules():
            known = getattr(module, "inv_freq", None)
            if isinstance(known, torch.Tensor):
                module.inv_freq = known / file.frequencies.to(known)
    return model.eval()


def _load_by_transformers(file: GgufFile, path: Path) -> Any:
    """The model of a file of another family, where `transformers`' own loader knows it."""
    from transformers import AutoConfig
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    if file.scales_positions:
        raise ValueError(
            f"[checkpoint] positions that are scaled must be of a family that is read here; got "
            f"{file.architecture}; try one of {', '.join(FAMILIES)}, or a folder of safetensors"
        )
    config_loader: Any = AutoConfig
    read: Any = load_gguf_checkpoint
    try:
        # Its own `from_pretrained` would ask for the package accelerate.
        config = config_loader.from_pretrained(
            path.parent, gguf_file=path.name, local_files_only=True
        )
        model = _class_for("").from_config(config).float()
        weights = read(str(path), return_tensors=True, model_to_load=model)["tensors"]
        report = model.load_state_dict(weights, strict=False)
    except (ValueError, KeyError, IndexError, NotImplementedError, RuntimeError, OSError) as error:
        raise ValueError(
            f"[checkpoint] no model in {path}: {error}; try one of {', '.join(FAMILIES)}, or a "
            f"folder of safetensors"
        ) from error
    model.tie_weights()
    missing = set(report.missing_keys)
    if "lm_head.weight" in missing and config.tie_word_embeddings:
        missing.discard("lm_head.weight")
    _check_whole(missing, path)
    return model.eval()


def _empty(config: dict[str, Any], media: Collection[str] = ()) -> Any:
    """A model of a configuration, without memory for its weights."""
    with torch.device("meta"):
        return _made_of(config, media)


def _with_weights(empty: Any, weights: dict[str, torch.Tensor], checkpoint: str | Path) -> Any:
    """One like `empty`, by `transformers`' own loader, which knows what names files have for the
    weights of its modules. ValueError if some are missing."""
    model, report = type(empty).from_pretrained(
        None, config=empty.config, state_dict=weights, dtype=torch.float32, output_loading_info=True
    )
    _check_whole(report["missing_keys"], checkpoint)
    return model


def _take_generation_config(model: Any, directory: Path) -> None:
    """Which tokens end a text, where the checkpoint says."""
    from transformers import GenerationConfig

    if (directory / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(directory)


def media_of(model: Any) -> set[str]:
    """What it takes beside texts: "images", "audio"; nothing if it is a language model alone."""
    found = {"images"} if hasattr(model, "get_image_features") else set()
    towers = (getattr(one, "audio_tower", None) for one in (model, getattr(model, "model", None)))
    if any(isinstance(tower, torch.nn.Module) for tower in towers):
        found.add("audio")
    return found


def text_part(model: Any) -> Any:
    """Of a model that also sees or hears, the causal language model in it, with its very
    weights."""
    if not media_of(model):
        return model
    try:
        with torch.device("meta"):
            made = _class_for("").from_config(model.config.text_config)
    except ValueError:  # the library has no class for it alone
        return _TextPart(model).eval()
    setattr(made, made.base_model_prefix, model.get_decoder())
    made.set_output_embeddings(model.get_output_embeddings())
    made.generation_config = model.generation_config
    return made.eval()


class _TextPart(torch.nn.Module):
    """A language model for which the library has no class: its layers, and the head that makes
    logits of the last `logits_to_keep` tokens, or of all."""

    base_model_prefix = "model"

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.get_decoder()
        self.lm_head = model.get_output_embeddings()
        self.generation_config = model.generation_config

    @property
    def config(self) -> Any:
        """Of the language model."""
        return self.model.config

    def forward(self, input_ids: Any = None, *, logits_to_keep: int = 0, **given: Any) -> Any:
        """As of the library's classes."""
        named = inspect.signature(self.model.forward).parameters
        if "cache" in named and "past_key_values" in given:
            given["cache"] = given.pop("past_key_values")
        result = self.model(input_ids=input_ids, **given)
        result.logits = self.lm_head(result.last_hidden_state[:, -logits_to_keep:])
        return result

    def get_input_embeddings(self) -> Any:
        """Those of words."""
        return self.model.get_input_embeddings()

    def get_output_embeddings(self) -> Any:
        """The head."""
        return self.lm_head

    def set_attn_implementation(self, name: str) -> None:
        """Of all layers."""
        self.model.set_attn_implementation(name)


def _asked_part(model: Any, media: Collection[str]) -> Any:
    for kind, verb in (("images", "seen"), ("audio", "heard")):
        if kind in media and kind not in media_of(model):
            raise ValueError(
                f"[checkpoint] {kind} must be {verb} by the model; got a {type(model).__name__}, "
                f"which does not; try without --{kind}"
            )
    return model if media else text_part(model)


_CLASSES_OF_SPEECH = {
    "whisper": "AutoModelForSpeechSeq2Seq",
    "parakeet_ctc": "AutoModelForCTC",
    "parakeet_rnnt": "AutoModelForRNNT",
    "parakeet_tdt": "AutoModelForTDT",
}


def _class_for(kind: str, media: Collection[str] = ()) -> Any:
    """The class of `transformers` that makes models of a `model_type`; with what sees or hears, if
    there is a choice."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    if kind in SPEECH:
        found = getattr(transformers, _CLASSES_OF_SPEECH[kind], None)
        if found is None:
            raise ValueError(
                f"[checkpoint] a {SPEECH[kind]} needs transformers 5.24; got "
                f"{transformers.__version__}; try pip install --upgrade transformers"
            )
        return found
    if media or kind not in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        if kind in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
            return transformers.AutoModelForImageTextToText
        if kind in getattr(auto, "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES", ()):
            return transformers.AutoModelForMultimodalLM
        if kind in HEARING:  # where the library takes them for translators
            return transformers.AutoModelForSeq2SeqLM
    return transformers.AutoModelForCausalLM


def _check_whole(names: Iterable[str], checkpoint: str | Path) -> None:
    missing = sorted(names)
    if missing:
        raise ValueError(
            f"[checkpoint] must hold all weights; got none for {', '.join(missing[:5])}"
            f"{' and others' if len(missing) > 5 else ''} in {checkpoint}"
        )
