"""The kinds of files that are read in Python, one row for each: what reads it as an application
does, and which errors it may raise. `tests/fuzz/corpus/<kind>` holds files of each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import mutations

CORPUS = Path(__file__).parent / "corpus"
_MOST_INPUT = 1 << 20
"""Bytes of inputs of an NPU's program; those that ask for more are not run."""


@dataclass(frozen=True)
class Kind:
    """run: takes a file's path. errors: what it may raise, with a text that begins with "[".
    folders: of the corpus; by default the kind's own."""

    run: Callable[[Path], None]
    mutate: mutations.Mutation
    errors: tuple[type[Exception], ...] = (ValueError,)
    folders: tuple[str, ...] = ()


def _record(path: Path) -> None:
    from edgewise.inspect.record import load_record

    record = load_record(path)
    for method in record.methods:
        _ = method.by_name
    record.to_dict()


def _contents(path: Path) -> None:
    from edgewise.inspect.reading import open_program, read_contents

    read_contents(path).to_dict()
    open_program(path)


def _etdump(path: Path) -> None:
    from edgewise.profiling.etdump import read_etdump

    profile = read_etdump(path)
    profile.to_dict()
    str(profile)


def _plan(path: Path) -> None:
    from edgewise.scale.plan_file import read_plan

    _ = read_plan(path).combinations


def _config(path: Path) -> None:
    from edgewise.llm.config import read_config

    read_config(str(path))


def _tokenizer(path: Path) -> None:
    """Each file in a process of its own, as always; but a fork, which has the library already."""
    import tokenizers  # noqa: F401

    from edgewise.llm import text
    from forked import ForkedProcess

    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads would stay behind in forks
    forking = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedProcess})
    with mock.patch.object(text, "subprocess", forking):
        tokenizer = text.load_tokenizer(path)
        tokens = tokenizer.encode("so it goes on")
        stream = text.TextStream(tokenizer, tokens)
        for token in (*tokens[:4], 0, 1, 40):
            stream.add(token)
        text.check_fit(tokenizer, max(1, tokenizer.size))


def _ethosu(path: Path) -> None:
    import numpy as np

    from edgewise.backends.ethosu import payload
    from edgewise.backends.ethosu.simulator import Simulator

    program = payload.from_bytes(path.read_bytes())
    simulator = Simulator(program)
    if sum(tensor.size for tensor in program.inputs) > _MOST_INPUT:
        return
    simulator.run([np.zeros(tensor.size, np.int8) for tensor in program.inputs])


def _neutron(path: Path) -> None:
    import numpy as np

    from edgewise.backends.neutron import reference

    program = reference.load_delegate(path.read_bytes(), {}, lambda key: b"")
    program([np.zeros((1, 3, 4, 4), np.int8)])


KINDS = {
    "config": Kind(_config, mutations.of_json),
    "contents": Kind(_contents, mutations.of_bytes, folders=("pte", "ptd")),
    "etdump": Kind(_etdump, mutations.of_bytes),
    "ethosu": Kind(_ethosu, mutations.of_bytes),
    "neutron": Kind(_neutron, mutations.of_bytes),
    "plan": Kind(_plan, mutations.of_yaml),
    "record": Kind(_record, mutations.of_json),
    "tokenizer": Kind(_tokenizer, mutations.of_json),
}


def corpus(name: str) -> list[Path]:
    """The kind's files, in one order."""
    folders = KINDS[name].folders or (name,)
    return [path for folder in folders for path in sorted((CORPUS / folder).iterdir())]
