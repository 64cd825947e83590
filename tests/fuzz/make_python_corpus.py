"""Makes the small files from which fuzzing of readers in Python starts:
`python tests/fuzz/make_python_corpus.py`. Needs the extras ethosu, neutron and llm."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from make_corpus import payload, write
from torch import nn

import edgewise

IMAGE = torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4)

PLANS = {
    "short": """models:
  net: models.py:net
""",
    "long": """name: all
out: results
models:
  net:
    source: models.py:net
    arguments: {width: 0.5, classes: [1, 2]}
    inputs: data.py:inputs
    calibration: data.py:images
    evaluation: {source: data.py:images, limit: 8, version: 2}
  exported: net.pt2
calibration: {a: data.py:a, b: {source: data.py:b, arguments: {seed: 1}}}
evaluation: data.py:test
backends: [xnnpack, ethos-u85-256, neutron-imxrt700-reference, none]
quantize: [none, int8, {scheme: int4-dynamic, group_size: 32, name: four},
           {scheme: int8, keep_float: ["head.*"], search: {target_db: 30, limit: 4}}]
metrics: [top1, metrics.py:f1]
latency: {threads: 2, seconds: 0.1}
limits: {seconds: 60, memory: 2 GB}
skip: [{model: net, backend: none}, {quantize: four}]
""",
}


class Net(nn.Module):
    """What NPUs take."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.convolution(x).relu()
        return nn.functional.max_pool2d(y, 2) + nn.functional.avg_pool2d(y, 2)


def net_payload(backend: str) -> bytes:
    """The first delegate's of Net."""
    program = edgewise.compile(
        Net().eval(), (IMAGE,), backend=backend, quantize="int8", calibration=[IMAGE], verbose=False
    )
    return payload(program.buffer)


def records() -> dict[str, bytes]:
    program = edgewise.compile(
        nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2)).eval(),
        (torch.ones(2, 4),),
        backend="xnnpack",
        verbose=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / "net.pte", record=True)
        compressed = (Path(folder) / "net.record.json.gz").read_bytes()
    return {"linear.json.gz": compressed, "linear.json": gzip.decompress(compressed)}


def tokenizers() -> dict[str, bytes]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = {}
    for name, model, trainer in (
        ("bpe", models.BPE(unk_token="?"), trainers.BpeTrainer),
        ("word", models.WordPiece(unk_token="?"), trainers.WordPieceTrainer),
    ):
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.decoder = decoders.BPEDecoder() if name == "bpe" else decoders.WordPiece()
        tokenizer.train_from_iterator(
            ["so it goes", "and so on"], trainer(vocab_size=32, special_tokens=["?", "<s>"])
        )
        made[f"{name}.json"] = tokenizer.to_str().encode()
    return made


def configs() -> dict[str, bytes]:
    values: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 16,
        "vocab_size": 32,
        "max_position_embeddings": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    return {"llama.json": json.dumps(values, indent=1).encode()}


def etdump() -> bytes:
    """Two runs of a kernel and a delegate of two operators."""
    from edgewise.flatbuffer import pack
    from edgewise.profiling import etdump_file as etdump

    def event(name: str | None, at: int, took: int, number: int, part: str | None = None) -> Any:
        found = etdump.ProfileEvent(name, 0, number, -1, part, b"", at, at + took)
        return etdump.DumpEvent(found)

    events = []
    for at in (0, 1000):
        events += [
            event("native_call_add.out", at + 10, 5, 0),
            event("OPERATOR_CALL", at + 9, 7, 0),
            event(None, at + 21, 10, 1, "Convolution"),
            event("DELEGATE_CALL", at + 20, 70, 1),
            event("Method::execute", at, 100, -1),
        ]
    run = etdump.RunData("forward", -1, [etdump.Allocator("planned")], events)
    return pack(etdump.ETDump(1, [run]), etdump.IDENTIFIER)


def main() -> None:
    torch.manual_seed(0)
    for name, data in records().items():
        write("record", name, data)
    for name, text in PLANS.items():
        write("plan", f"{name}.yaml", text.encode())
    for name, data in (tokenizers()).items():
        write("tokenizer", name, data)
    for name, data in configs().items():
        write("config", name, data)
    write("etdump", "two.etdp", etdump())
    for target in ("ethos-u55-128", "ethos-u85-256"):
        write("ethosu", f"{target}.bin", net_payload(target))
    write("neutron", "reference.bin", net_payload("neutron-imxrt700-reference"))


if __name__ == "__main__":
    main()
