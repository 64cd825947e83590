"""Small folders of Hugging Face's, random weights: against transformers itself, without torch.

The tolerance is of float32 kernels: 1e-4 of what classes and features are.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewise

transformers = pytest.importorskip("transformers")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "a", "fine", "film", "bad", "and", "not", "so", "long", "good"]
CHARACTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGH"]
TEXT = "a fine film and not so long"
PICTURE = np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8)
SOUND = np.random.default_rng(2).standard_normal(3000).astype(np.float32) / 3


def bert(folder: Path, kind: str = "BertForSequenceClassification", **more: Any) -> Any:
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
        num_labels=3,
        id2label={0: "O", 1: "yes", 2: "no"},
        **more,
    )
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    transformers.BertTokenizer(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return getattr(transformers, kind)(config)


def pooled(folder: Path) -> Any:
    modules = [
        {"type": f"sentence_transformers.models.{m}", "path": m}
        for m in ("Transformer", "Pooling", "Normalize")
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "Pooling").mkdir()
    (folder / "Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return bert(folder, "BertModel")


def vit(folder: Path) -> Any:
    size = {"height": 16, "width": 16}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=1,
            num_attention_heads=2, intermediate_size=16, num_labels=7,
        )
    )  # fmt: skip


def convnext(folder: Path) -> Any:
    transformers.ConvNextImageProcessor(size={"shortest_edge": 32}).save_pretrained(folder)
    return transformers.ConvNextForImageClassification(
        transformers.ConvNextConfig(hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], num_labels=3)
    )


def wav2vec(folder: Path) -> Any:
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({c: i for i, c in enumerate(CHARACTERS)}))
    transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json")).save_pretrained(folder)
    return transformers.Wav2Vec2ForCTC(
        transformers.Wav2Vec2Config(
            vocab_size=len(CHARACTERS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16, conv_dim=[8, 8], conv_kernel=[10, 3], conv_stride=[5, 2],
            num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
            do_stable_layer_norm=False, pad_token_id=0,
        )
    )  # fmt: skip


def whisper(folder: Path) -> Any:
    transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=1).save_pretrained(folder)
    return transformers.WhisperModel(
        transformers.WhisperConfig(
            vocab_size=20, num_mel_bins=16, d_model=16, encoder_layers=1, decoder_layers=1,
            encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
            decoder_ffn_dim=16, max_source_positions=50, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, decoder_start_token_id=1,
        )
    )  # fmt: skip


def labels(logits: Any) -> list[str]:
    return [f"{x:.4f}" for x in sorted(torch.softmax(logits[0], -1).tolist(), reverse=True)[:5]]


def scores(answer: Any) -> list[str]:
    return [f"{one['score']:.4f}" for one in answer]


# task, what makes the folder, sequence_length, value, how transformers' output is told, and ours
CASES: list[tuple[str, str, Callable[[Path], Any], int | None, Any, Any, Any]] = [
    ("classify", "text-classification", bert, 16, TEXT, lambda y: labels(y.logits), scores),
    ("several", "text-classification",
     lambda f: bert(f, problem_type="multi_label_classification"), 16, TEXT,
     lambda y: [f"{x:.4f}" for x in sorted(torch.sigmoid(y.logits[0]).tolist(), reverse=True)],
     scores),
    ("pair", "text-classification", bert, 16, ("a film", "not good"),
     lambda y: labels(y.logits), scores),
    ("words", "token-classification", lambda f: bert(f, "BertForTokenClassification"), 12, TEXT,
     lambda y: [int(i) for i in y.logits[0, 1:8].argmax(-1) if i],
     lambda a: [("O", "yes", "no").index(one["entity"]) for one in a]),
    ("fill", "fill-mask", lambda f: bert(f, "BertForMaskedLM"), 12, "a fine [MASK] and good",
     lambda y: y.logits[0, 3].argsort(descending=True)[:5].tolist(),
     lambda a: [one["token"] for one in a]),
    ("tokens", "feature-extraction", lambda f: bert(f, "BertModel"), 12, TEXT,
     lambda y: y.last_hidden_state[0, :9].numpy(), np.asarray),
    ("sentence", "feature-extraction", pooled, 12, TEXT,
     lambda y: torch.nn.functional.normalize(y.last_hidden_state[0, :9].mean(0), dim=0).numpy(),
     np.asarray),
    ("vit", "image-classification", vit, None, PICTURE, lambda y: labels(y.logits), scores),
    ("convnext", "image-classification", convnext, None, PICTURE,
     lambda y: labels(y.logits), scores),
    ("speech", "automatic-speech-recognition", wav2vec, 4000, SOUND,
     lambda y: None, lambda a: None),
    ("encoder", "automatic-speech-recognition", whisper, None, SOUND,
     lambda y: y.last_hidden_state[0].numpy(), np.asarray),
]  # fmt: skip


def expected(folder: Path, model: Any, task: str, value: Any, length: int | None) -> Any:
    """transformers' output."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint8:
        given = transformers.AutoImageProcessor.from_pretrained(folder)(value, return_tensors="pt")
    elif isinstance(value, np.ndarray):
        given = transformers.AutoFeatureExtractor.from_pretrained(folder)(
            value,
            sampling_rate=16000,
            padding="max_length",
            max_length=length or 16000,
            return_tensors="pt",
        )
    else:
        texts = value if isinstance(value, tuple) else (value,)
        given = transformers.AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt")
    model = model.get_encoder() if model.config.is_encoder_decoder else model
    with torch.no_grad():
        return model.eval()(**given)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., tuple[Path, Any]]:
    def make(build: Callable[[Path], Any]) -> tuple[Path, Any]:
        torch.manual_seed(0)
        folder = tmp_path / "folder"
        folder.mkdir()
        model = build(folder)
        model.save_pretrained(folder)
        return folder, model

    return make


@pytest.mark.parametrize(
    ("task", "build", "length", "value", "theirs", "ours"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_as_transformers_answers(
    task: str, build: Any, length: int | None, value: Any, theirs: Any, ours: Any,
    made: Any, tmp_path: Path,
) -> None:  # fmt: skip
    folder, model = made(build)
    program = edgewise.compile(folder, task=task, sequence_length=length, verbose=False)
    program.save(tmp_path / "made")
    loaded = edgewise.load(tmp_path / "made")
    answer = loaded(value)
    output = expected(folder, model, task, value, length)
    wanted, got = theirs(output), ours(answer)
    if isinstance(wanted, np.ndarray):
        np.testing.assert_allclose(got, wanted, atol=1e-4)
    else:
        assert got == wanted
    if task == "automatic-speech-recognition" and build is wav2vec:
        logits = loaded.run("forward", **loaded.prepare(value))
        np.testing.assert_allclose(logits, output.logits.numpy(), atol=1e-4)
        frames = ((len(value) - 10) // 5 + 1 - 3) // 2 + 1
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        read = tokenizer.decode(logits[0, :frames].argmax(-1))
        assert answer == {"text": re.sub(r"<[a-z/]+>", "", read).strip()}
    assert loaded([value, value])[1] is not None


@pytest.mark.parametrize(
    ("build", "part", "task", "value"),
    [
        (vit, "image_processor", "image-classification", PICTURE),
        (wav2vec, "feature_extractor", "automatic-speech-recognition", SOUND),
        (whisper, "feature_extractor", "automatic-speech-recognition", SOUND),
    ],
    ids=["vit", "wav2vec", "whisper"],
)
def test_settings_among_those_of_a_whole_processor(
    build: Any, part: str, task: str, value: Any, made: Any, tmp_path: Path
) -> None:
    """As `save_pretrained` of a processor writes them in transformers 5."""
    folder, _ = made(build)
    answers = []
    for name in ("alone", "whole"):
        edgewise.compile(folder, task=task, verbose=False).save(tmp_path / name)
        answers.append(edgewise.load(tmp_path / name)(value))
        alone = folder / "preprocessor_config.json"
        if alone.exists():
            settings = json.loads(alone.read_text())
            (folder / "processor_config.json").write_text(json.dumps({part: settings}))
            alone.unlink()
    np.testing.assert_equal(answers[1], answers[0])


def test_parakeets_are_another_commands(made: Any) -> None:
    folder, _ = made(wav2vec)
    settings = {"feature_extractor_type": "ParakeetFeatureExtractor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="try edgewise llm export --checkpoint"):
        edgewise.compile(folder, task="automatic-speech-recognition", verbose=False)


def test_runs_without_torch_or_transformers(made: Any, tmp_path: Path) -> None:
    folder, _ = made(bert)
    task = "text-classification"
    program = edgewise.compile(
        folder, task=task, quantize="int8", calibration=[TEXT, "bad"], verbose=False
    )
    program.save(tmp_path / "made", record=True)
    names = {path.name for path in (tmp_path / "made").iterdir()}
    assert {"model.pte", "model.record.json.gz", "edgewise.json", "tokenizer.json"} <= names
    code = (
        "import sys, edgewise; answer = edgewise.load(sys.argv[1])('a fine film'); "
        "assert sorted(one['label'] for one in answer) == ['O', 'no', 'yes']; "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "made")], check=True)


def test_what_is_too_long_is_told(made: Any, tmp_path: Path) -> None:
    folder, _ = made(bert)
    with pytest.warns(UserWarning, match=r"sequence_length is at most the model's 24; got 500"):
        program = edgewise.compile(
            folder, task="text-classification", sequence_length=500, verbose=False
        )
    program.save(tmp_path / "made")
    with pytest.warns(UserWarning, match="cut to the model's 24 tokens"):
        edgewise.load(tmp_path / "made")(TEXT * 9)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "task must be one of .*text-classification.*got None"),
        ({"task": "poetry"}, ValueError, "got 'poetry'"),
        ({"task": "image-classification"}, ValueError, "must be what the folder's model can do"),
        ({"task": "token-classification"}, ValueError, "all weights.*classifier"),
        ({"task": "fill-mask", "sequence_length": 0}, ValueError, "sequence_length must be 1"),
        ({"task": "text-classification", "example_inputs": (torch.ones(1),)}, ValueError,
         "a folder's task says what the model takes; got example_inputs"),
    ],
)  # fmt: skip
def test_refused_folders(options: Any, error: Any, message: str, made: Any) -> None:
    folder, _ = made(lambda f: bert(f, "BertModel"))
    with pytest.raises(error, match=message):
        edgewise.compile(folder, verbose=False, **options)


def test_refused_descriptions(made: Any, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="a program is a file"):
        edgewise.load(tmp_path)
    path = tmp_path / "edgewise.json"
    good = {"format": "edgewise-task", "version": 1, "task": "fill-mask", "kind": "text"}
    good["inputs"] = ["input_ids"]  # type: ignore[assignment]
    for text, message in [
        ("{", "must be JSON"),
        ("[]", "of the format"),
        (json.dumps({**good, "version": 2}), "version 1; got 2"),
        (json.dumps({**good, "task": "poetry"}), "poetry"),
        (json.dumps({**good, "length": "5"}), "length that fits"),
        (json.dumps({**good, "steps": [[1, 0]]}), "steps that fits"),
        (json.dumps(good), "one program"),
    ]:
        path.write_text(text)
        with pytest.raises(
            (edgewise.runtime.InvalidProgramError, FileNotFoundError), match=message
        ):
            edgewise.load(tmp_path)
