"""Local folders of Hugging Face's as models to compile, with what goes before and after them.

    edgewise.compile("folder", task="text-classification").save("made")
    edgewise.load("made")("A fine film.")  # without torch

Needs transformers, which reads the folder; nothing is downloaded, no code of the folder's is run.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise.llm.config import processor_settings
from edgewise.pictures import KNOWN
from edgewise.tasks.description import NAME, TASKS, Description
from edgewise.tasks.model import FILTERS, Preparing

__all__ = ["TASKS", "Folder", "open_folder"]

_CLASSES = {
    "audio-classification": "AutoModelForAudioClassification",
    "automatic-speech-recognition": "AutoModelForCTC",
    "feature-extraction": "AutoModel",
    "fill-mask": "AutoModelForMaskedLM",
    "image-classification": "AutoModelForImageClassification",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
}
_TOKENS = 128
_SECONDS = 5
_KEPT = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
)
"""Files of processors that are kept as they are, besides tokenizer.json."""


@dataclass
class Folder:
    """A model that was read. prepare: from a text, a picture or a sound to the inputs by name."""

    module: torch.nn.Module
    example_kwargs: dict[str, torch.Tensor]
    prepare: Callable[[Any], dict[str, torch.Tensor]]
    description: Description
    kept: Mapping[str, bytes]

    def files(self) -> dict[str, bytes]:
        """What lies beside the program, by name."""
        return {NAME: self.description.to_bytes(), **self.kept}


class _Text(torch.nn.Module):
    """One tensor of what the model returns. The arguments' names are those of the file."""

    def __init__(self, model: torch.nn.Module, result: str) -> None:
        super().__init__()
        self.model, self.result = model, result

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
    ) -> Any:
        given = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
        known = {name: value for name, value in given.items() if value is not None}
        return getattr(self.model(input_ids=input_ids, **known), self.result)


class _Picture(_Text):
    def forward(self, pixel_values: torch.Tensor) -> Any:  # type: ignore[override]
        return getattr(self.model(pixel_values=pixel_values), self.result)


class _Sound(_Text):
    def forward(self, input_values: torch.Tensor) -> Any:  # type: ignore[override]
        return getattr(self.model(input_values), self.result)


class _Spectrogram(_Text):
    def forward(self, input_features: torch.Tensor) -> Any:  # type: ignore[override]
        return getattr(self.model(input_features), self.result)


_MODULES = {"text": _Text, "picture": _Picture, "sound": _Sound, "spectrogram": _Spectrogram}


def open_folder(folder: str | Path, task: str | None, sequence_length: int | None = None) -> Folder:
    """The folder's model for a task.

    sequence_length: tokens of a text (128, or what the model was made for if that is less),
    samples of a sound (5 seconds). ValueError for a task or a length that cannot be, or a processor
    whose work is not done without transformers; FileNotFoundError for files that are missing.
    """
    folder = Path(folder)
    if task not in TASKS:
        raise ValueError(
            f"[compile] task must be one of {', '.join(TASKS)} for a folder; got {task!r}"
        )
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"[compile] a folder must hold config.json and weights, as save_pretrained writes "
            f"them; got {folder}"
        )
    if sequence_length is not None and (type(sequence_length) is not int or sequence_length < 1):
        raise ValueError(f"[compile] sequence_length must be 1 or more; got {sequence_length!r}")
    transformers = _transformers()
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    kind = _kind(folder, task)
    with _quiet():
        model = _model(folder, task, config, kind)
    if kind == "text":
        description, kept = _text(folder, task, config, model, sequence_length)
    elif kind == "picture":
        if sequence_length is not None:
            raise ValueError("[compile] sequence_length is of texts and sounds; got a picture's")
        description, kept = _picture(folder, task, config)
    else:
        description, kept = _sound(folder, task, config, kind, sequence_length)
    for name in _KEPT:
        if (folder / name).is_file():
            kept.setdefault(name, (folder / name).read_bytes())
    result = "last_hidden_state" if _has_features(task, model) else "logits"
    made = Folder(
        _MODULES[kind](model, result).eval(), {}, _preparing(description, kept), description, kept
    )
    sample = _sample(description)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sample may be longer than a text may be here
        made.example_kwargs = made.prepare(sample)
    _check_processor(folder, made, sample)
    return made


def _transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "[compile] reading a folder needs transformers; got none; try pip install transformers",
            name="transformers",
        ) from missing


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' bars, which it draws wherever its output goes."""
    logging = _transformers().utils.logging
    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            logging.enable_progress_bar()


def _kind(folder: Path, task: str) -> str:
    """What goes in, by the task, and by the processor where that may be several."""
    if task == "image-classification":
        return "picture"
    if task in ("text-classification", "token-classification", "fill-mask"):
        return "text"
    found = processor_settings(folder)
    if found is None:
        if task == "feature-extraction":
            return "text"
        raise FileNotFoundError(
            f"[compile] {task} needs preprocessor_config.json or processor_config.json; got "
            f"{folder}"
        )
    extractor = found.get("feature_extractor_type", "")
    if extractor == "Wav2Vec2FeatureExtractor":
        return "sound"
    if extractor == "WhisperFeatureExtractor":
        return "spectrogram"
    if extractor == "ParakeetFeatureExtractor":
        raise ValueError(
            f"[compile] a Parakeet becomes a file that writes by another command; got {folder}; "
            f"try edgewise llm export --checkpoint {folder}"
        )
    if extractor.endswith("ImageProcessor") or "image_processor_type" in found:
        return "picture"
    raise ValueError(
        f"[compile] {task} needs a processor of pictures, or one of Wav2Vec2's or Whisper's of "
        f"sounds; got {extractor or found.get('processor_class')!r}; try the model itself and its "
        f"inputs"
    )


def _has_features(task: str, model: torch.nn.Module) -> bool:
    speech = task == "automatic-speech-recognition" and not hasattr(model, "lm_head")
    return task == "feature-extraction" or speech


def _model(folder: Path, task: str, config: Any, kind: str) -> torch.nn.Module:
    transformers = _transformers()
    name = _CLASSES[task]
    if task == "automatic-speech-recognition" and config.is_encoder_decoder:
        name = "AutoModel"
    try:
        loaded: Any = getattr(transformers, name).from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    except ValueError as failure:
        raise ValueError(
            f"[compile] {task} must be what the folder's model can do; got {config.model_type}: "
            f"{str(failure).splitlines()[0][:200]}"
        ) from failure
    except OSError as failure:
        raise FileNotFoundError(f"[compile] no weights in {folder}: {failure}") from failure
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if task == "feature-extraction":
        missing = [one for one in missing if not one.startswith("pooler")]
    if missing:
        raise ValueError(
            f"[compile] the folder must hold all weights of {task}; got none for "
            f"{', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}; try the task "
            f"that it was trained for ({', '.join(config.architectures or ['unknown'])})"
        )
    if kind in ("sound", "spectrogram", "text") and config.is_encoder_decoder:
        if kind == "text":
            raise ValueError(
                f"[compile] a folder's model of texts must be an encoder; got {config.model_type}"
            )
        model = model.get_encoder()
    found: torch.nn.Module = model.eval()
    return found


def _labels(config: Any, task: str) -> tuple[str, ...]:
    if not task.endswith("classification"):
        return ()
    return tuple(str(config.id2label[i]) for i in range(len(config.id2label)))


def _scores(config: Any) -> str:
    several = config.problem_type == "multi_label_classification" or config.num_labels == 1
    return "sigmoid" if several else "softmax"


def _text(
    folder: Path, task: str, config: Any, model: torch.nn.Module, wanted: int | None
) -> tuple[Description, dict[str, bytes]]:
    from tokenizers import Tokenizer

    tokenizer = _transformers().AutoTokenizer.from_pretrained(folder, local_files_only=True)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(
            f"[compile] a folder's tokenizer must be one of the library tokenizers; got "
            f"{type(tokenizer).__name__}; try tokenizer.save_pretrained of a fast one"
        )
    most = min(
        tokenizer.model_max_length,
        getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length,
    )
    length = wanted or _TOKENS
    if length > most:
        length = int(most)
        if wanted is not None:
            warnings.warn(
                f"[compile] sequence_length is at most the model's {length}; got {wanted}",
                stacklevel=4,
            )
    kept = Tokenizer.from_str(backend.to_str())
    kept.no_padding()
    kept.enable_truncation(length)
    accepted = inspect.signature(model.forward).parameters
    names = [n for n in ("input_ids", "attention_mask", "token_type_ids") if n in accepted]
    names = [n for n in names if n in tokenizer.model_input_names]
    pooling, normalized = _pooling(folder) if task == "feature-extraction" else ("", False)
    description = Description(
        task,
        "text",
        tuple(names),
        length=length,
        labels=_labels(config, task),
        scores=_scores(config),
        pad=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0,
        pads_left=tokenizer.padding_side == "left",
        mask=tokenizer.mask_token_id if tokenizer.mask_token_id is not None else -1,
        pooling=pooling,
        normalized=normalized,
    )
    return description, {"tokenizer.json": kept.to_str().encode()}


def _pooling(folder: Path) -> tuple[str, bool]:
    """What sentence-transformers makes of tokens' features: how, and whether one long."""
    if not (folder / "modules.json").is_file():
        return "", False
    modules = json.loads((folder / "modules.json").read_text())
    kinds = [str(one["type"]).rpartition(".")[2] for one in modules]
    unknown = sorted(set(kinds) - {"Transformer", "Pooling", "Normalize"})
    path = next((folder / m["path"] / "config.json" for m in modules if "Pooling" in m["type"]), "")
    if unknown or not path:
        raise ValueError(
            f"[compile] modules.json must be of Transformer, Pooling and Normalize; got "
            f"{', '.join(kinds)}"
        )
    found = json.loads(Path(path).read_text())
    how = found.get("pooling_mode")
    known = {"cls_token": "cls", "cls": "cls", "mean_tokens": "mean", "mean": "mean"}
    known |= {"max_tokens": "max", "max": "max"}
    flags = [name.removeprefix("pooling_mode_") for name, on in found.items() if on is True]
    chosen = [known.get(name, "") for name in ([how] if how else flags) if name != "include_prompt"]
    if len(chosen) != 1 or not chosen[0]:
        raise ValueError(
            f"[compile] pooling must be one of cls, mean and max; got {how or ', '.join(flags)}"
        )
    return chosen[0], "Normalize" in kinds


def _picture(folder: Path, task: str, config: Any) -> tuple[Description, dict[str, bytes]]:
    transformers = _transformers()
    processor = transformers.AutoImageProcessor.from_pretrained(folder, local_files_only=True)
    settings = {k: v for k, v in processor.to_dict().items() if v is not None}
    plain = json.loads(json.dumps(settings, default=_plain))
    unknown = [k for k, v in plain.items() if k.startswith("do_") and v is True and k not in KNOWN]
    if unknown:
        raise ValueError(
            f"[compile] pictures are prepared by {', '.join(sorted(KNOWN))}; got "
            f"{', '.join(unknown)} of {type(processor).__name__}; try the model itself"
        )
    how = {key: value for key, value in plain.items() if key in KNOWN}
    labels, scores = _labels(config, task), _scores(config)
    described = Description(
        task, "picture", ("pixel_values",), labels=labels, scores=scores, picture=how
    )
    return described, {}


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else int(value)


def _sound(
    folder: Path, task: str, config: Any, kind: str, wanted: int | None
) -> tuple[Description, dict[str, bytes]]:
    transformers = _transformers()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder, local_files_only=True)
    settings = extractor.to_dict()
    rate = int(extractor.sampling_rate)
    kept: dict[str, bytes] = {}
    if kind == "spectrogram":
        length = int(extractor.n_samples)
        if wanted not in (None, length):
            raise ValueError(
                f"[compile] sequence_length of a spectrogram is the model's {length} samples; got "
                f"{wanted}; try without"
            )
        written = io.BytesIO()
        np.save(written, np.asarray(extractor.mel_filters, np.float64))
        kept[FILTERS] = written.getvalue()
        how = {key: settings[key] for key in ("n_fft", "hop_length")}
    else:
        length = wanted or _SECONDS * rate
        names = ("do_normalize", "padding_value", "return_attention_mask")
        how = {name: getattr(extractor, name) for name in names}
    labels, blank = _labels(config, task), 0
    if task == "automatic-speech-recognition" and kind == "sound":
        labels, blank = _characters(folder)
    kernels = getattr(config, "conv_kernel", None) or ()
    strides = getattr(config, "conv_stride", None) or ()
    described = Description(
        task,
        kind,
        ("input_features" if kind == "spectrogram" else "input_values",),
        length=length,
        labels=labels,
        scores=_scores(config),
        pad=blank,
        rate=rate,
        steps=tuple(zip(map(int, kernels), map(int, strides), strict=False)),
        sound=how,
    )
    return described, kept


def _characters(folder: Path) -> tuple[tuple[str, ...], int]:
    """By number, and the number of the blank. Special tokens read as nothing."""
    transformers = _transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    vocabulary = tokenizer.get_vocab()
    told = [""] * (max(vocabulary.values()) + 1)
    special = set(tokenizer.all_special_tokens)
    between = getattr(tokenizer, "word_delimiter_token", "|")
    for token, number in vocabulary.items():
        told[number] = "|" if token == between else "" if token in special else token
    return tuple(told), int(tokenizer.pad_token_id or 0)


def _preparing(
    description: Description, kept: Mapping[str, bytes]
) -> Callable[[Any], dict[str, torch.Tensor]]:
    """What the loaded folder will do, with its own files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in kept.items():
            (Path(folder) / name).write_bytes(data)
        preparing = Preparing(description, Path(folder))

    def prepare(value: Any) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array) for name, array in preparing(value).items()}

    return prepare


def _sample(description: Description) -> Any:
    random = np.random.default_rng(0)
    if description.kind == "text":
        return "A short text, as an example: 3.5 of them."
    if description.kind == "picture":
        return random.integers(0, 256, (300, 260, 3), dtype=np.uint8)
    count = min(3 * description.length // 4 + 1, 3 * description.rate // 2)
    return random.standard_normal(count).astype(np.float32) / 4


def _check_processor(folder: Path, made: Folder, sample: Any) -> None:
    """ValueError if the folder's own processor makes something else of the sample."""
    transformers = _transformers()
    about = made.description
    if about.kind == "text":
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if tokenizer.pad_token is None:
            return  # it cannot fill up; the mask hides what stands there
        wanted = tokenizer(
            sample,
            padding="max_length",
            truncation=True,
            max_length=about.length,
            return_tensors="np",
        )
    elif about.kind == "picture":
        processor = transformers.AutoImageProcessor.from_pretrained(folder, local_files_only=True)
        wanted = processor(images=sample, return_tensors="np")
    else:
        extractor = transformers.AutoFeatureExtractor.from_pretrained(folder, local_files_only=True)
        wanted = extractor(
            sample,
            sampling_rate=about.rate,
            padding="max_length",
            max_length=about.length,
            return_tensors="np",
        )
    for name, ours in made.example_kwargs.items():
        theirs = np.asarray(wanted[name])
        off = ours.shape != theirs.shape or float(np.abs(ours.numpy() - theirs).max()) > 0.02
        if off:
            raise ValueError(
                f"[compile] {about.kind}s must be prepared as transformers does; got other "
                f"{name} ({list(ours.shape)}, {list(theirs.shape)}); try the model itself and its "
                f"inputs, and please tell us of this processor"
            )
