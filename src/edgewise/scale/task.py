"""What is run: a named function of content, and what became of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Status = Literal["ok", "error", "crash", "time", "memory", "lost"]
"""`error`: the function raised. `crash`: its process died. `time`, `memory`: a limit was passed.
`lost`: its worker died as often as it may."""


@dataclass(frozen=True)
class Limits:
    """What a task may take before its process is killed. None: no limit.

    seconds: of wall time, from its start; waiting for the machine does not count.
    bytes: resident memory of the task's processes together.
    """

    seconds: float | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "bytes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"[limits] {name} must be above 0; got {value}")


@dataclass(frozen=True)
class Shared:
    """Bytes that many tasks are sent. handle: the engine's; None: whoever gets it has them."""

    digest: str
    handle: Any


@dataclass(frozen=True)
class Context:
    """What a task's function is told besides its arguments: where things are, no content.

    store: the location of a `Store`, or "". root: the folder that paths of sources start from.
    attachments: the task's, by name.
    """

    store: str = ""
    root: str = "."
    attachments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A call `function(arguments, context)` whose result depends on nothing else.

    function: "package.module:name". arguments: plain data, as JSON has it. attachments: bytes
    that are sent along, under names; what `Engine.share` returned is sent to each worker once.
    exclusive: nothing else that an engine runs may run on the machine meanwhile.
    versions: what else the result depends on; part of the key.
    """

    function: str
    arguments: Mapping[str, Any]
    attachments: Mapping[str, bytes | Shared] = field(default_factory=dict, compare=False)
    limits: Limits = field(default=Limits(), compare=False)
    exclusive: bool = field(default=False, compare=False)
    versions: Mapping[str, str] = field(default_factory=dict)
    label: str = field(default="", compare=False)

    @property
    def shared(self) -> dict[str, Any]:
        """The handles of attachments that are shared, by their digests."""
        return {a.digest: a.handle for a in self.attachments.values() if isinstance(a, Shared)}

    def with_handles(self, handles: Mapping[str, Any]) -> Task:
        """The same with other handles."""
        attachments = {
            name: replace(a, handle=handles[a.digest]) if isinstance(a, Shared) else a
            for name, a in self.attachments.items()
        }
        return replace(self, attachments=attachments)

    @property
    def key(self) -> str:
        """32 hexadecimal digits: equal for equal functions, arguments and versions."""
        content = [self.function, self.arguments, self.versions]
        return digest(json.dumps(content, sort_keys=True, allow_nan=False).encode())


@dataclass(frozen=True)
class Outcome:
    """What became of a task. value: what the function returned, if `ok`."""

    key: str
    status: Status
    value: Any = None
    error: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    """The largest resident memory of its process; a forked process shares what it inherits."""
    host: str = ""
    limits: Limits = Limits()
    """Those it ran under."""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def stands(self, limits: Limits) -> bool:
        """Whether the same would come of it under these limits: a wider limit is another try."""
        if self.status == "lost":
            return False
        if self.status == "time":
            return _not_wider(limits.seconds, self.limits.seconds)
        if self.status == "memory":
            return _not_wider(limits.bytes, self.limits.bytes)
        return True


def _not_wider(now: float | None, then: float | None) -> bool:
    return now is not None and then is not None and now <= then


def digest(data: bytes) -> str:
    """32 hexadecimal digits of the content."""
    return hashlib.sha256(data).hexdigest()[:32]
