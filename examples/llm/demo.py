"""A language model from nothing: trains a tokenizer and a small Llama on this Python's own
docstrings, writes both, and makes the .pte that `edgewise llm run` continues texts with.

    python examples/llm/demo.py --output /tmp/llm
    edgewise llm run /tmp/llm/model.pte --prompt "Return the"
    edgewise llm chat /tmp/llm/model.pte

For a model of yours: `edgewise llm export --checkpoint DIR --output model.pte`.
"""

import argparse
import re
import sysconfig
from pathlib import Path
from typing import Any

VOCABULARY = 1024
CONTEXT = 256
LENGTH = 64
"""Tokens of a training example."""


def docstrings() -> list[str]:
    """Of the standard library, as they stand in its files."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    sources = [path.read_text(errors="ignore") for path in sorted(folder.glob("*.py"))]
    found = [d for source in sources for d in re.findall(r'"""(.{80,}?)"""', source, re.DOTALL)]
    return [re.sub(r"\s+", " ", text).strip() for text in found]


def train_tokenizer(texts: list[str], folder: Path) -> Any:
    """Byte pairs; `tokenizer.json` in the folder."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, VOCABULARY, show_progress=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    # It knows no questions and answers: in a chat it goes on with what was said.
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }} {% endfor %}"
    )
    return tokenizer


def train_model(texts: list[str], tokenizer: Any, steps: int) -> Any:
    """A Llama of 4 layers."""
    import torch

    from edgewise.llm.export import random_model

    sizes = {"hidden_size": 128, "intermediate_size": 384, "vocab_size": VOCABULARY}
    heads = {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    ends = {"bos_token_id": None, "eos_token_id": None, "max_position_embeddings": CONTEXT}
    model = random_model({**sizes, **heads, **ends}).train()
    tokens = torch.tensor([t for text in texts for t in tokenizer.encode(text + "\n").ids])
    print(f"training: {sum(p.numel() for p in model.parameters()):,} parameters, ", end="")
    print(f"{len(tokens):,} tokens of text")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(steps):
        first = torch.randint(len(tokens) - LENGTH, (16, 1))
        batch = tokens[first + torch.arange(LENGTH)]
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"  step {step}: loss {loss.item():.2f}", flush=True)
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("build/llm"), metavar="DIR")
    parser.add_argument("--steps", type=int, default=400, help="of training")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)

    from edgewise.llm.export import copy_tokenizer, lower_model, quantize_model

    texts = docstrings()
    tokenizer = train_tokenizer(texts, options.output)
    model = train_model(texts, tokenizer, options.steps)
    model.save_pretrained(options.output)  # what `export --checkpoint` takes
    path = options.output / "model.pte"
    lower_model(quantize_model(model), max_context_len=CONTEXT).save(path)
    copy_tokenizer(options.output, path)
    print(f"wrote {path}; try:")
    print(f'edgewise llm run {path} --prompt "Return the"')
    print(f"edgewise llm chat {path} --max-new-tokens 40")


if __name__ == "__main__":
    main()
