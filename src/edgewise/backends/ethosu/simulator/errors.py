"""What stops a program in the simulator."""


class NpuError(ValueError):
    """A command breaks a rule: of the stream's format, of memory, or of the order of accesses.

    Messages read "[target, offset, command] rule; got X".
    """


class NotSimulatedError(NpuError):
    """A command is well formed, but the simulator does not do what it asks for."""
