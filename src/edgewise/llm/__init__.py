"""Language models that generate.

    from edgewise.llm import Generator
    for token in Generator("model.pte").generate([1, 15043, 3186]):
        ...

`edgewise llm run` does it with text, `edgewise llm export` makes the file. Running needs numpy, and
`pip install edgewise[llm]` for a tokenizer; exporting needs `edgewise[export]` and transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgewise.lazy import attribute

if TYPE_CHECKING:
    from edgewise.llm.batch import BatchGenerator
    from edgewise.llm.generator import Generator, Statistics
    from edgewise.llm.sampling import Sampling
    from edgewise.llm.speculation import DraftModel, PromptLookup
    from edgewise.llm.text import Tokenizer, load_tokenizer

_HOMES = {
    "BatchGenerator": "edgewise.llm.batch",
    "DraftModel": "edgewise.llm.speculation",
    "Generator": "edgewise.llm.generator",
    "PromptLookup": "edgewise.llm.speculation",
    "Sampling": "edgewise.llm.sampling",
    "Statistics": "edgewise.llm.generator",
    "Tokenizer": "edgewise.llm.text",
    "load_tokenizer": "edgewise.llm.text",
}

__all__ = [
    "BatchGenerator",
    "DraftModel",
    "Generator",
    "PromptLookup",
    "Sampling",
    "Statistics",
    "Tokenizer",
    "load_tokenizer",
]


def __getattr__(name: str) -> Any:
    return attribute(__name__, _HOMES, name)
