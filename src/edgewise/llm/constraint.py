"""Texts that keep to a JSON schema, an expression or a grammar, by the library llguidance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import numpy as np

__all__ = ["Constraint", "Grammar", "GrammarTokens"]

_MOST_BYTES = 1 << 20
"""Of a grammar or schema."""


class Constraint(Protocol):
    """Which tokens can come next."""

    def allowed(self, vocab_size: int) -> Any:
        """bool [vocab_size]; None if the text is complete and nothing can follow."""

    def take(self, token: int) -> None:
        """Goes on with the token."""


class GrammarTokens:
    """What grammars need to know of a tokenizer. One serves all texts.

    path: of a `tokenizer.json`, or its folder. eos_ids: tokens that end a text.

    ModuleNotFoundError without llguidance, ValueError if it cannot read the file.
    """

    def __init__(self, path: str | Path, vocab_size: int, eos_ids: frozenset[int]) -> None:
        library = _library()
        file = Path(path)
        if file.is_dir():
            file = file / "tokenizer.json"
        if file.suffix != ".json" or not file.is_file():
            raise ValueError(
                f"[grammar] a grammar needs a tokenizer.json; got {path}; try a tokenizer of the "
                f"library tokenizers"
            )
        if not eos_ids:
            raise ValueError("[grammar] a model must have a token that ends a text; got none")
        try:
            self.tokens = library.LLTokenizer(
                file.read_text(encoding="utf-8"), n_vocab=vocab_size, eos_token=sorted(eos_ids)
            )
        except Exception as failure:  # Rust's errors have no class of their own
            raise ValueError(f"[grammar] no tokenizer for grammars in {file}: {failure}") from None

    def json_schema(self, schema: dict[str, Any] | str) -> Grammar:
        """Texts that are JSON of the schema. {} for any JSON."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self._grammar(lambda library: library.LLMatcher.grammar_from_json_schema(text), text)

    def regex(self, pattern: str) -> Grammar:
        """Texts that the expression matches as a whole."""
        return self._grammar(lambda library: library.LLMatcher.grammar_from_regex(pattern), pattern)

    def lark(self, grammar: str) -> Grammar:
        """Texts of a grammar in llguidance's variant of Lark's notation."""
        return self._grammar(lambda library: library.LLMatcher.grammar_from_lark(grammar), grammar)

    def _grammar(self, make: Any, source: str) -> Grammar:
        if len(source.encode()) > _MOST_BYTES:
            raise ValueError(
                f"[grammar] must have at most {_MOST_BYTES} bytes; got {len(source.encode())}"
            )
        library = _library()
        try:
            grammar = make(library)
        except Exception as failure:  # Rust's errors have no class of their own
            raise ValueError(f"[grammar] cannot be read: {failure}") from None
        return Grammar(library.LLMatcher(self.tokens, grammar, log_level=0))


class Grammar:
    """A `Constraint` of one text. ValueError if the grammar is none."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self._check()

    def allowed(self, vocab_size: int) -> Any:
        """See `Constraint`."""
        if self._matcher.is_stopped():
            self._check()
            return None
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        known = np.unpackbits(bits, bitorder="little")[:vocab_size].astype(bool)
        allowed = np.zeros(vocab_size, dtype=bool)
        allowed[: len(known)] = known
        return allowed

    def take(self, token: int) -> None:
        """See `Constraint`. ValueError for a token that cannot follow."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            failure = str(self._matcher.get_error()).splitlines()[0]
            raise ValueError(f"[grammar] cannot go on: {failure}")


def _library() -> Any:
    try:
        import llguidance
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "[grammar] needs the package llguidance; try pip install 'edgewise[llm]'",
            name="llguidance",
        ) from None
    return llguidance
