"""Whether a program touches only memory that Vela holds for what is computed then.

Vela plans memory and generates commands apart from each other. Where a command is of another shape
than what was planned, it writes over values that are still read, or reads beyond its own: a wrong
number, without a word.
"""

from __future__ import annotations

from edgewise.backends.ethosu.lowering.vela import ArenaBlock, VelaProgram
from edgewise.backends.ethosu.simulator.accesses import accesses
from edgewise.backends.ethosu.simulator.errors import NotSimulatedError, NpuError

_ARENA, _FAST = 1, 2
"""Regions that Vela plans; others are the program's inputs and outputs, or inside the NPU."""


def stray_access(made: VelaProgram) -> str | None:
    """The first command that leaves the blocks of memory of its time, or that no NPU carries out,
    told; None if there is none, or if the command stream is one that the simulator cannot read.

    A transfer may run ahead of the layer that needs it: it is in a block of any time.
    """
    try:
        return _first_stray(made)
    except NotSimulatedError:
        return None
    except NpuError as error:
        return str(error)


def _first_stray(made: VelaProgram) -> str | None:
    figures = made.figures
    layers = figures.layers_by_command()
    blocks: dict[int, list[ArenaBlock]] = {_ARENA: [], _FAST: []}
    for block in figures.arena:
        is_fast = made.fast_scratch_size and block.memory == "Sram"
        blocks[_FAST if is_fast else _ARENA].append(block)
    for command, access in accesses(made.program.commands):
        if access.region not in blocks:
            continue
        layer = layers.of(command.offset)
        always = command.name == "NPU_OP_DMA_START"
        if layer is None and not always:
            continue  # behind the last layer that Vela tells of
        if not any(
            block.address <= access.start
            and access.end <= block.address + block.bytes
            and (always or (layer is not None and block.first <= layer <= block.last))
            for block in blocks[access.region]
        ):
            name = "" if layer is None else f" of {figures.layers[layer].operator}"
            return f"{command.name}{name} with a {access}"
    return None
