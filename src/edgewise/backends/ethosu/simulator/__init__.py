"""Runs the programs of Ethos-U NPUs on the host, bit by bit. Needs numpy only."""

from edgewise.backends.ethosu.simulator.errors import NotSimulatedError, NpuError
from edgewise.backends.ethosu.simulator.program import Simulator
from edgewise.backends.ethosu.simulator.stream import disassemble

__all__ = ["NotSimulatedError", "NpuError", "Simulator", "disassemble"]
