"""What the runtime raises. Messages read "[where] rule; got X; try Y"."""

from __future__ import annotations

__all__ = [
    "BackendError",
    "Error",
    "InvalidArgumentError",
    "InvalidProgramError",
    "NotFoundError",
    "OutOfMemoryError",
    "UnsupportedError",
]


class Error(RuntimeError):
    """Base of all errors of the runtime, and the error where no subclass fits."""


class InvalidProgramError(Error, ValueError):
    """A file breaks a rule of the format."""


class InvalidArgumentError(Error, ValueError):
    """An argument is not what the call or the program takes."""


class NotFoundError(Error, KeyError):
    """A method, operator or backend that does not exist."""

    def __str__(self) -> str:
        return RuntimeError.__str__(self)  # KeyError's would quote the message


class UnsupportedError(Error):
    """A well-formed file asks for something that this runtime does not do."""


class OutOfMemoryError(Error, MemoryError):
    """There is not as much memory as a program needs."""


class BackendError(Error):
    """A delegate failed. For a backend in Python, `__cause__` is its exception."""
