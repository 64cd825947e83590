"""ExecuTorch's backends as ours."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from torch.export import ExportedProgram

from edgewise.errors import PartitionError
from edgewise.partition.executorch.dialect import in_executorch_dialect
from edgewise.partition.spec import BackendDetails, CompileSpec, DelegationSpec, PreprocessResult


@dataclass(frozen=True)
class ExecutorchDelegationSpec(DelegationSpec):
    """Names a backend of ExecuTorch's package, even if one of ours has the same name."""

    def backend(self) -> type[BackendDetails]:
        """PartitionError if no backend of ExecuTorch's with that name was imported."""
        return _backend(self.backend_id)


@cache
def _backend(name: str) -> type[BackendDetails]:
    from executorch.exir.backend.backend_details import BackendDetails as TheirDetails

    by_name: dict[str, Any] = {found.__name__: found for found in _subclasses(TheirDetails)}
    if name not in by_name:
        raise PartitionError(
            f"[to_backend] a DelegationSpec must name an imported backend of ExecuTorch's; got "
            f"{name!r}; try one of: {', '.join(sorted(by_name)) or 'none'}, or import the module "
            f"that defines it"
        )
    theirs = by_name[name]
    own_copy = _own_function(theirs, TheirDetails, "copy_exported_program_for_preprocess")

    def given(program: ExportedProgram, specs: list[Any]) -> ExportedProgram:
        """What the backend may change as it likes."""
        made = in_executorch_dialect(program)
        if own_copy is not None:
            copied: ExportedProgram = own_copy(made, specs)
            return copied
        _copy_tensors(made)
        return made

    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        specs = _their_specs(compile_specs)
        return _result(theirs.preprocess(given(edge_program, specs), specs))

    def preprocess_multimethod(
        cls: type[BackendDetails],
        edge_programs: Mapping[str, Sequence[ExportedProgram]],
        compile_specs: Mapping[str, Sequence[list[CompileSpec]]],
    ) -> Mapping[str, Sequence[PreprocessResult]]:
        del cls
        specs = {method: [*map(_their_specs, several)] for method, several in compile_specs.items()}
        programs = {
            method: [given(one, own) for one, own in zip(several, specs[method], strict=True)]
            for method, several in edge_programs.items()
        }
        made = theirs.preprocess_multimethod(programs, specs)
        return {method: [*map(_result, results)] for method, results in made.items()}

    # As a class of theirs: what it raises is no defect of edgewise.
    body: dict[str, Any] = {"__module__": theirs.__module__, "preprocess": staticmethod(preprocess)}
    if _own_function(theirs, TheirDetails, "preprocess_multimethod") is not None:
        body["preprocess_multimethod"] = classmethod(preprocess_multimethod)
    made = types.new_class(name, (BackendDetails,), {"registered": False}, lambda b: b.update(body))
    return cast(type[BackendDetails], made)


def _copy_tensors(program: ExportedProgram) -> None:
    copies: dict[int, Any] = {}
    for table in (program.state_dict, program.constants):
        for key, value in table.items():
            if isinstance(value, torch.Tensor) and id(value) not in copies:
                copies[id(value)] = value.detach().clone()
                if isinstance(value, torch.nn.Parameter):
                    copies[id(value)] = torch.nn.Parameter(copies[id(value)], value.requires_grad)
            table[key] = copies.get(id(value), value)


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    one: type[Any]
    for one in cls.__subclasses__():
        yield one
        yield from _subclasses(one)


def _own_function(cls: Any, base: Any, name: str) -> Any:
    """The method, if the class overrides it; releases before its time have none in the base."""
    own, default = getattr(cls, name, None), getattr(base, name, None)
    return (
        own if getattr(own, "__func__", own) is not getattr(default, "__func__", default) else None
    )


def _their_specs(specs: Sequence[CompileSpec]) -> list[Any]:
    from executorch.exir.backend.compile_spec_schema import CompileSpec as TheirSpec

    return [TheirSpec(one.key, one.value) for one in specs]


def named_data_of(store: Any) -> tuple[dict[str, bytes], dict[str, str]]:
    """Of what ExecuTorch's `NamedDataStore` put out: blobs by key, and data files by key."""
    named: dict[str, bytes] = {}
    files: dict[str, str] = {}
    for file, held in [(None, store.pte_data), *store.external_data.items()]:
        for key, entry in held.items():
            # ExecuTorch 1.0 has numbers here, and alignments with the buffers.
            held_at = store.buffers[getattr(entry, "buffer_index", entry)]
            named[key] = _bytes(getattr(held_at, "buffer", held_at))
            if file is not None:
                files[key] = file
    return named, files


def _result(theirs: Any) -> PreprocessResult:
    store = theirs.data_store_output
    named, files = ({}, {}) if store is None else named_data_of(store)
    payload, handles = _bytes(theirs.processed_bytes), dict(theirs.debug_handle_map or {})
    return PreprocessResult(payload, named, handles, data_files=files)


def _bytes(data: Any) -> bytes:
    """Of bytes, or of a file that ExecuTorch keeps large data in."""
    found: bytes = data.to_bytes() if hasattr(data, "to_bytes") else bytes(data)
    return found
