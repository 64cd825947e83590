"""Perplexity of a language model with 4-bit weights: plain rounding next to AWQ and GPTQ.

A decoder is trained here, on the sources and docstrings of Python's standard library (kept for the
next run), for --minutes; its perplexity is that of files that were left out. Weights are rounded
in groups of --group; the program that is judged is the one that is lowered.
"""

from __future__ import annotations

import argparse
import math
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from _common import add_cache_options, report
from torch import Tensor, nn

LENGTH = 128
"""Tokens of an example."""
WAYS: dict[str, list[str]] = {
    "plain rounding": [],
    "AWQ": ["awq"],
    "GPTQ": ["gptq"],
    "AWQ, GPTQ": ["awq", "gptq"],
}


class Block(nn.Module):
    """Attention and a gated feed-forward part, each behind a normalization."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, hidden = heads, 32 * round(width * 8 / 3 / 32)
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[N, tokens, width] to the same."""
        y = self.norm1(x)
        q, k, v = (
            layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Tokens [N, LENGTH] to logits [N, LENGTH, vocabulary]."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(vocabulary, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """See the class."""
        x = self.embed(tokens) + self.places(torch.arange(LENGTH))
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.head(self.norm(x))
        return y


def tokens_of(vocabulary: int, most: int) -> tuple[Tensor, Tensor]:
    """Of the standard library: to train on, and every twentieth file to test on."""
    from tokenizers import ByteLevelBPETokenizer

    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    texts = [file.read_text(errors="ignore") for file in files]
    train = [text for i, text in enumerate(texts) if i % 20]
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(train, vocabulary, show_progress=False)

    def coded(some: Sequence[str]) -> Tensor:
        return torch.tensor([t for text in some for t in tokenizer.encode(text).ids])

    return coded(train), coded(texts[::20])[: most * LENGTH]


def trained(model: Decoder, tokens: Tensor, minutes: float) -> Decoder:
    """With AdamW and a rate that falls with the time that is left; products in bfloat16."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=2e-3, weight_decay=0.05, betas=(0.9, 0.95), fused=True
    )
    start, step, loss = time.monotonic(), 0, 0.0
    while (spent := (time.monotonic() - start) / (60 * minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 20) * (1 - 0.9 * spent)
        first = torch.randint(len(tokens) - LENGTH, (8, 1))
        batch = tokens[first + torch.arange(LENGTH + 1)]
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch[:, :-1])
        found = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss = 0.95 * loss + 0.05 * float(found) if step else float(found)
        step += 1
        if step % 50 == 0:
            print(f"step {step}: loss {loss:.3f}", file=sys.stderr, flush=True)
    return model.eval()


def perplexity(run: Callable[..., Any], tokens: Tensor) -> float:
    """Of all tokens of an example but its first."""
    total, count = 0.0, 0
    with torch.no_grad():
        for part in tokens.split(LENGTH):
            if len(part) < LENGTH:
                break
            logits = torch.as_tensor(run(part[None]))[0, :-1]
            total += float(F.cross_entropy(logits, part[1:], reduction="sum"))
            count += LENGTH - 1
    return math.exp(total / count)


def main() -> None:
    """See the module's docstring."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--test", type=int, default=100, help="examples that are judged")
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--go-on", action="store_true", help="train what was kept for longer")
    parser.add_argument("--json", type=Path, metavar="FILE")
    add_cache_options(parser)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    tokens, test = tokens_of(options.vocabulary, options.test)
    model = Decoder(options.vocabulary, options.width, options.layers).eval()
    options.cache.mkdir(parents=True, exist_ok=True)
    file = options.cache / f"decoder-{options.width}-{options.layers}-{options.vocabulary}.pt"
    if file.exists():
        model.load_state_dict(torch.load(file, weights_only=True))
    if options.go_on or not file.exists():
        trained(model.train(), tokens, options.minutes)
        torch.save(model.state_dict(), file)
    if options.train_only:
        return
    calibration = [(tokens[i * 5000 :][None, :LENGTH],) for i in range(32)]
    report(
        f"A language model of {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters",
        rows_of(model, calibration, test, options.group),
        ["ratio: of the perplexity to the float model's"],
        options.json,
    )


def rows_of(
    model: Decoder, calibration: Sequence[tuple[Tensor]], test: Tensor, group: int
) -> list[dict[str, Any]]:
    """A row for the float model and each way."""
    import edgewise

    plain = perplexity(model, test)
    rows: list[dict[str, Any]] = [{"weights": "float32", "perplexity": plain, "ratio": 1.0}]
    for name, methods in WAYS.items():
        start = time.perf_counter()
        program = edgewise.compile(
            model,
            calibration[0],
            quantize="int4-weight",
            group_size=group,
            methods=methods,
            calibration=calibration if methods else None,
            verbose=False,
        )
        seconds = time.perf_counter() - start
        found = perplexity(edgewise.load(program.buffer), test)
        rows.append(
            {
                "weights": f"int4 in groups of {group}, {name}",
                "perplexity": found,
                "ratio": found / plain,
                "file MB": len(program.buffer) / 1e6,
                "s": seconds,
            }
        )
    return rows


if __name__ == "__main__":
    main()
