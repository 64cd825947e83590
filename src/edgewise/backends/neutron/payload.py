"""The delegate's payload: for the official runtime, or for the host.

The official one is four blocks, each padded to 16 bytes: a header of single bytes (numbers of
inputs, outputs and arguments; a format for each input and output; to which argument each belongs;
the version), microcode, weights, kernels. The host's, which the official runtime refuses by its
magic, is a TFLite file with the formats of inputs and outputs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from edgewise.errors import PartitionError

ALIGNMENT = 16
REFERENCE_MAGIC = b"EWneutronTFLite1"
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class NeutronArtifacts:
    """The NeutronGraph's parts.

    inputs, outputs: for each of the node's, its index among the graph's. version 1 has two more
    outputs behind the results, for profiling and debugging.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    microcode: bytes
    weights: bytes
    kernels: bytes
    version: int


def _padded(block: bytes) -> bytes:
    return block + bytes(-len(block) % ALIGNMENT)


def official(artifacts: NeutronArtifacts, channels_last: set[str], arguments: int) -> bytes:
    """The payload for NXP's runtime.

    channels_last: names of inputs and outputs whose dimensions the runtime must reorder.
    arguments: how many inputs the delegate is called with.
    """
    counts = [len(artifacts.inputs), len(artifacts.outputs), arguments]
    formats = [
        int(name in channels_last) for name in (*artifacts.input_names, *artifacts.output_names)
    ]
    numbers = [*counts, *formats, *artifacts.inputs, *artifacts.outputs, artifacts.version]
    if max(numbers) > 255:
        raise PartitionError(
            f"[Neutron] a partition must have at most 255 inputs and outputs; got {max(numbers)}; "
            f"try operators_not_to_delegate for what joins them"
        )
    blocks = (bytes(numbers), artifacts.microcode, artifacts.weights, artifacts.kernels)
    return b"".join(map(_padded, blocks))


@dataclass(frozen=True)
class ReferencePayload:
    """A program for the host.

    inputs, outputs: for each argument of the delegate, whether its dimensions must be moved to
    channels last before (inputs) or back after (outputs).
    """

    model: bytes
    target: str
    inputs: tuple[bool, ...]
    outputs: tuple[bool, ...]


def write_reference(payload: ReferencePayload) -> bytes:
    """Bytes: magic, target, flags, the TFLite file at a multiple of 16."""
    target = payload.target.encode()
    head = bytes([len(target), len(payload.inputs), len(payload.outputs)]) + target
    head += bytes(payload.inputs) + bytes(payload.outputs)
    return b"".join(
        map(_padded, (REFERENCE_MAGIC, _LENGTH.pack(len(payload.model)) + head, payload.model))
    )


def read_reference(data: bytes) -> ReferencePayload:
    """ValueError if the bytes are not what `write_reference` makes."""
    if data[: len(REFERENCE_MAGIC)] != REFERENCE_MAGIC:
        raise ValueError(
            "[NeutronBackend] this program was compiled for the NPU, which is not simulated; got "
            "NXP microcode; try lowering with neutron_converter_flavor='reference' to run it here"
        )
    try:
        at = len(REFERENCE_MAGIC)
        (length,) = _LENGTH.unpack_from(data, at)
        name, inputs, outputs = data[at + 8 : at + 11]
        flags = at + 11 + name
        start = flags + inputs + outputs
        start += -start % ALIGNMENT
        model = data[start : start + length]
        if len(model) != length:
            raise ValueError(f"a program of {length} bytes is cut after {len(model)}")
        return ReferencePayload(
            model=model,
            target=data[at + 11 : flags].decode(),
            inputs=_flags(data[flags : flags + inputs]),
            outputs=_flags(data[flags + inputs : flags + inputs + outputs]),
        )
    except (ValueError, struct.error) as cause:
        raise ValueError(f"[NeutronBackend] the payload must be whole; got {cause}") from None


def _flags(data: Sequence[int]) -> tuple[bool, ...]:
    if any(value > 1 for value in data):
        raise ValueError("a flag that is neither 0 nor 1")
    return tuple(bool(value) for value in data)
