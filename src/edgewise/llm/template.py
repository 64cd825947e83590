"""Chat templates: jinja2 in its sandbox, with what `transformers` gives them.

A template is a program of whoever made the model. The sandbox keeps it from Python's insides; how
long it works and how much memory it takes is bound by the process it runs in
(`tokenizer_process`).
"""

from __future__ import annotations

import datetime
import json
from typing import Any

__all__ = ["render"]

_MOST = 4 << 20
"""Characters of a result."""


def render(template: str, variables: dict[str, Any]) -> str:
    """The text. ValueError with the template's message if it refuses, its error otherwise;
    ModuleNotFoundError without jinja2."""
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what a model says, which matters in training alone."""

        tags = {"generation"}  # noqa: RUF012  (jinja2's)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def refuse(message: str) -> None:
        raise ValueError(message)

    def as_json(value: Any, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        parts, length = [], 0
        for part in environment.from_string(template).generate(**variables):
            parts.append(part)
            length += len(part)
            if length > _MOST:
                raise ValueError(f"its text has more than {_MOST} characters")
    except jinja2.TemplateError as failure:
        raise ValueError(f"{type(failure).__name__}: {failure}") from None
    return "".join(parts)
