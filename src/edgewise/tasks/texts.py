"""From texts to tokens of a fixed number."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.runtime.errors import InvalidArgumentError
from edgewise.tasks.description import Description

if TYPE_CHECKING:
    from edgewise.llm.text import Encoded, ProcessTokenizer


def encoded(tokenizer: ProcessTokenizer, value: Any) -> Encoded:
    """A text's tokens, or those of a pair of texts. Warns if the text was too long."""
    pair = value if isinstance(value, tuple) else (value, None)
    if len(pair) != 2 or not isinstance(pair[0], str) or not isinstance(pair[1], (str, type(None))):
        raise InvalidArgumentError(
            f"[call] a text must be a string, or a pair of strings in a tuple; got "
            f"{type(value).__name__}"
        )
    found = tokenizer.encode_pair(*pair)
    if found.truncated:
        warnings.warn(
            f"[call] the text was cut to the model's {len(found.tokens)} tokens; try "
            f"edgewise.compile with a larger sequence_length",
            stacklevel=5,
        )
    return found


def arrays(description: Description, text: Encoded) -> dict[str, Any]:
    """The program's inputs, each int64[1, length]."""
    missing = description.length - len(text.tokens)
    before, after = (missing, 0) if description.pads_left else (0, missing)

    def filled(values: list[int], fill: int) -> Any:
        return np.array([[fill] * before + values + [fill] * after], np.int64)

    made = {
        "input_ids": filled(text.tokens, description.pad),
        "attention_mask": filled([1] * len(text.tokens), 0),
        "token_type_ids": filled(text.type_ids, 0),
    }
    return {name: made[name] for name in description.inputs}


def first_token(description: Description, text: Encoded) -> int:
    """Where the text begins among the program's tokens."""
    return description.length - len(text.tokens) if description.pads_left else 0
