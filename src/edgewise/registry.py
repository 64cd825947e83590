"""The backends that are installed: which there are, and what each can be asked for.

Packages offer a backend as an entry point of the group `edgewise.backends`: an object that does
what `Backend` says, its class, or a tuple of such objects. This project's own are found in the same
way; nothing outside of their folders knows their names. docs/backends.md shows how to write one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from edgewise.inspect.delegate_graphs import DelegateGraph
    from edgewise.inspect.needs import Need
    from edgewise.inspect.payloads import Payload
    from edgewise.partition.spec import Partitioner
    from edgewise.quantize.quantizer import TableQuantizer

DelegateFunction = Callable[[list[Any]], Sequence[Any]]
"""Runs a delegate: from its arguments to its outputs."""
BackendFactory = Callable[[bytes, dict[str, bytes], Callable[[str], bytes]], DelegateFunction]
"""Of a payload, compile specs and named data; `edgewise.runtime.register_backend` says more."""

GROUP = "edgewise.backends"
"""Of the entry points."""
DEFAULT = "xnnpack"
"""Where nobody names a target."""
NO_BACKEND = "none"
"""The target that stands for the runtime's own kernels alone."""


@dataclass(frozen=True)
class OperatorFacts:
    """What `edgewise ops` tells of one line of a backend's operator table, all of it as text."""

    name: str
    operators: Sequence[str]
    """PyTorch's: "relu.default"."""
    types: str = ""
    rules: Sequence[str] = ()
    """What must hold; a node that breaks one is refused with it."""
    accuracy: str = ""
    special_values: Sequence[str] = ()
    computed_as: str = ""


@dataclass(frozen=True)
class Tools:
    """Programs and packages that no extra installs."""

    kind: str
    """As `edgewise doctor --json` calls them: "neutron_converters"."""
    found: Sequence[str]
    advice: str
    """What to do where none is found."""


class Backend(Protocol):
    """What a backend is asked for. Subclass it: only `name`, `delegate_id` and `partitioner`
    must be there; whatever else is asked has the answer of a backend that has nothing to tell.

    Made when its package is first asked for, on machines that only run programs as well: so its
    module imports neither torch nor a compiler at its top.
    """

    name: str
    """What people call it: `edgewise ops NAME`."""
    delegate_id: str
    """What files call it: the backend id of its delegates."""
    title: str = ""
    """For texts and pages; the name, if there is none."""
    example: str = ""
    """One of the targets, for messages; the first, if there is none."""
    colours: tuple[str, str] = ("#eef0f3", "#6b7684")
    """Background and border of its nodes in drawings."""
    in_executorch: bool = False
    """Whether ExecuTorch's releases can be built with a delegate of this id."""
    is_simulated: bool = False
    """Whether this machine imitates the device: times that are measured say nothing of it."""
    schemes: Sequence[str] | None = None
    """The quantization schemes that it computes with; None for all, () if there is no quantizer."""
    computes: str = ""
    """In words, why it takes only these: "in integers"."""
    packages: Sequence[str] = ()
    """Distributions that decide on what it makes, for caches of results."""
    extra: str = ""
    """Of edgewise: what installs what it needs."""
    purpose: str = ""
    """What the extra is for, in words: "compiles for ..."."""
    modules: Sequence[str] = ()
    """What is imported of the extra's packages."""

    options: Sequence[str] = ()
    """Of `edgewise.compile`, that `configured` takes."""

    def configured(self, options: Mapping[str, str]) -> Backend:
        """The same backend, with settings of `options` for its partitioner and quantizer."""
        return self

    def targets(self) -> Sequence[str]:
        """Names that `edgewise.compile(backend=...)` takes."""
        return [self.name]

    def target(self, name: str) -> str | None:
        """The target that a user means by `name`; None if it is none of this backend's."""
        return name if name in self.targets() else None

    def missing(self, target: str) -> str:
        """What is not installed that compiling for the target needs, and how to get it; "" if
        nothing is."""
        return ""

    def partitioner(self, target: str) -> Partitioner:
        """What takes nodes for the target. ImportError where only the runtime is installed."""
        ...

    def quantizer(self, target: str) -> Callable[[], TableQuantizer] | None:
        """What makes the quantizer for the target; None if there is none."""
        return None

    def operators(self) -> Sequence[OperatorFacts]:
        """The operator table, in the order of names."""
        return ()

    def read_payload(self, payload: memoryview, named: Mapping[str, memoryview]) -> DelegateGraph:
        """What a delegate's payload holds. named: the program's named data. ValueError if it
        breaks its format."""
        raise ValueError(f"[{self.delegate_id}] payloads have no reader")

    def payload_graph(self, payload: bytes | memoryview) -> Payload | None:
        """The payload's graph, of which each node knows what it was lowered from; None if
        payloads are no graphs. ValueError if it breaks its format."""
        return None

    def needs(self, payload: bytes | memoryview) -> Iterable[Need]:
        """What of the payload not every release of ExecuTorch can run."""
        return ()

    def timeline(self, payload: memoryview) -> Mapping[str, Any] | None:
        """When a model of the device does what, in cycles (see `edgewise.report.timelines`); None
        if there is no such model."""
        return None

    def runtime_factory(self) -> BackendFactory | None:
        """What runs its delegates in this process, for `edgewise.runtime.register_backend`: a
        simulator, say. None if the native runtime does, or nothing here can."""
        return None

    def tools(self) -> Tools | None:
        """What else it uses, for `edgewise doctor`; None if nothing."""
        return None

    def preload(self) -> None:
        """Imports what compiling needs, in a process of which others are forked."""
        return None


@cache
def backends() -> tuple[Backend, ...]:
    """All of them, this project's first. One that cannot be used is left out, with a warning."""
    found: dict[str, Backend] = {}
    for entry in _entries():
        try:
            offered = _offered(entry.load())
        except Exception as error:  # of any package
            _warn(entry, f"{type(error).__name__}: {error}")
            continue
        for backend in offered:
            taken = {backend.name, *backend.targets()} & {NO_BACKEND}.union(
                *({one.name, *one.targets()} for one in found.values())
            )
            if backend.delegate_id in found or taken:
                _warn(entry, f"the name of another: {', '.join(taken) or backend.delegate_id}")
                continue
            found[backend.delegate_id] = backend
    return tuple(found.values())


def _offered(loaded: Any) -> tuple[Backend, ...]:
    """Of an entry point: a backend, its class, or a tuple of backends."""
    made = loaded() if isinstance(loaded, type) else loaded
    offered: tuple[Backend, ...] = made if isinstance(made, tuple) else (made,)
    for backend in offered:
        for what in ("name", "delegate_id", "partitioner"):
            getattr(backend, what)
    return offered


def _entries() -> list[EntryPoint]:
    # Imported here: it takes longer than all of the runtime's own modules together.
    from importlib.metadata import EntryPoint, entry_points

    found = sorted(
        entry_points(group=GROUP),
        key=lambda one: (not _is_own(one), one.name != DEFAULT, one.name),
    )
    if not any(map(_is_own, found)):
        # Sources that nobody installed have no metadata: their folders tell.
        folders = sorted((Path(__file__).parent / "backends").glob("*/plugin.py"))
        names = [path.parent.name for path in folders]
        found[:0] = [EntryPoint(n, f"{GROUP}.{n}.plugin:BACKEND", GROUP) for n in names]
    return list({one.value: one for one in found}.values())


def _is_own(entry: EntryPoint) -> bool:
    return entry.value.startswith(f"{GROUP}.")


def _warn(entry: EntryPoint, got: str) -> None:
    warnings.warn(
        f"[backends] the entry point {entry.name} = {entry.value} must be a backend with a name "
        f"of its own; got {got}; it is left out; try pip uninstall, or a newer version",
        RuntimeWarning,
        stacklevel=4,
    )


def title_of(backend: Backend) -> str:
    """What texts call it."""
    return backend.title or backend.name


def backend_of(delegate_id: str) -> Backend | None:
    """The backend of a file's delegates; None if none with that id is installed."""
    return next((one for one in backends() if one.delegate_id == delegate_id), None)


def backend_for(target: str) -> Backend | None:
    """The backend with that target; None for "none", and if there is none."""
    return next((one for one in backends() if one.target(target) is not None), None)


def partitioner_for(target: str = DEFAULT) -> Partitioner:
    """What takes nodes for a target."""
    return _required(target).partitioner(target)


def quantizer_for(target: str = DEFAULT) -> Callable[[], TableQuantizer]:
    """What makes the quantizer that goes with a target. ValueError if there is none."""
    made = _required(target).quantizer(target)
    if made is None:
        raise ValueError(
            f"[quantize] {target} must have a quantizer; got none; try backend={DEFAULT!r}"
        )
    return made


def scheme_problem(target: str, scheme: str) -> str:
    """Why the target's backend does not compute with a quantization scheme; "" if it does."""
    backend = _required(target)
    if backend.schemes is None or scheme in backend.schemes:
        return ""
    if not backend.schemes:
        return f"{target} has no quantizer of edgewise's"
    return f"{target} computes {backend.computes or 'with ' + ', '.join(backend.schemes)}"


def scheme_hint(target: str, usual: str) -> str:
    """What to try where there is a `scheme_problem`. usual: for a backend with other schemes."""
    if _required(target).schemes:
        return usual
    return "torchao's prepare_pt2e with a quantizer for it, and the program that is exported then"


def _required(target: str) -> Backend:
    name = checked_target("backend", target)
    found = backend_for(name)
    if found is None:
        raise ValueError(f"[backend] must be one of a backend's targets; got {target!r}")
    return found


def target_names() -> list[str]:
    """What `edgewise.compile(backend=...)` takes. A backend's tools may know further targets."""
    single = [name for one in backends() for name in one.targets() if name == one.name]
    others = [name for one in backends() for name in one.targets() if name != one.name]
    return [*single, NO_BACKEND, *others]


def checked_targets(where: str, given: object) -> tuple[str, ...]:
    """Targets that are asked in order, from a list or a text with commas between them.

    Raises as `checked_target`; ValueError for none, for one twice, for "none" among others.
    """
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)):
        names = [names]
    found = tuple(checked_target(where, n.strip() if isinstance(n, str) else n) for n in names)
    if not found or len(set(found)) < len(found) or (NO_BACKEND in found and len(found) > 1):
        raise ValueError(
            f"[{where}] several backends must be different ones, in the order in which they are "
            f"asked; got {given!r}; try 'ethos-u55-128,xnnpack'"
        )
    return found


def checked_target(where: str, name: object) -> str:
    """The target that is meant. ValueError if no backend has it; TypeError if it is no string.

    where: what the message starts with.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"[{where}] backend must be a name, such as {DEFAULT!r}; got {type(name).__name__}; "
            f"try edgewise.to_edge_transform_and_lower for partitioners of your own"
        )
    if name == NO_BACKEND:
        return name
    for backend in backends():
        found = backend.target(name)
        if found is not None:
            return found
    known = target_names()
    wanted = name.lower().replace("_", "-")
    near = get_close_matches(wanted, known, n=3, cutoff=0.6)
    near = near or [one for one in known if len(wanted) > 4 and one[:5] == wanted[:5]]
    plain = [one for one in known if one == NO_BACKEND or any(one == b.name for b in backends())]
    several = [
        f"{title_of(one)} ({(one.example or one.targets()[0])!r})"
        for one in backends()
        if one.targets() and one.name not in one.targets()
    ]
    targets = f", or a target of {' or '.join(several)}" if several else ""
    hint = f"; try {' or '.join(repr(one) for one in near or [DEFAULT])}"
    raise ValueError(
        f"[{where}] backend must be one of {', '.join(plain)}{targets}; got {name!r}{hint}"
    )
