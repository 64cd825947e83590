"""Exit codes, and one way from an exception to a message."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

OK = 0
FAILED = 1
"""What was asked for cannot be done with what was given; the message says why."""
USAGE = 2
"""There is no such command or option, or one is missing."""
MISSING = 3
"""Something is not installed; the message says how to get it."""
CHECK = 4
"""All was done, and a limit that was asked for does not hold (`compare --min-db`, `diff
--exit-code`, `doctor --check`)."""
DEFECT = 5
"""An exception that edgewise does not foresee. The traceback is shown."""
INTERRUPTED = 130

EXIT_CODES: dict[int, str] = {
    OK: "done",
    FAILED: "not possible with what was given: a file, a model, an input; the message says why",
    USAGE: "no such command or option, or one is missing",
    MISSING: "something is not installed; the message says how to get it",
    CHECK: "done, and a limit that was asked for does not hold",
    DEFECT: "an error that edgewise did not foresee: a defect, shown with its traceback",
    INTERRUPTED: "interrupted",
}

_EXTRAS = {
    "torch": "export",
    "torchao": "export",
    "flatbuffers": "export",
    "executorch": "peer",
    "onnxruntime": "peer",
    "gguf": "models",
    "jinja2": "llm",
    "llguidance": "llm",
    "starlette": "serve",
    "tokenizers": "llm",
    "transformers": "models",
    "PIL": "cli",
    "fsspec": "scale",
    "pyarrow": "scale",
    "ray": "ray",
    "rich": "cli",
    "typer": "cli",
    "uvicorn": "serve",
    "yaml": "scale",
}


class CliError(Exception):
    """A command cannot go on. Messages read "[where] rule; got X; try Y"."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Failure:
    """What is told of an exception. is_defect: its traceback is shown, too."""

    message: str
    code: int
    is_defect: bool = False


def failure_of(error: BaseException) -> Failure:
    """What a user is told, and the exit code."""
    from edgewise.errors import EdgewiseError, InternalError

    if isinstance(error, InternalError):
        return Failure(str(error), DEFECT, is_defect=True)
    if isinstance(error, KeyboardInterrupt):
        return Failure("interrupted", INTERRUPTED)
    if isinstance(error, CliError):
        return Failure(str(error), error.code)
    if isinstance(error, ModuleNotFoundError):
        return Failure(_not_installed(error), MISSING)
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # Typer's own
        return Failure(str(error.format_message()), int(error.exit_code))
    if isinstance(error, OSError) and error.errno is not None:
        return Failure(_of_file(error), FAILED)
    # A rule of edgewise's own; what torch or the user's code raises does not start like this.
    told = str(error)
    if isinstance(error, EdgewiseError) or told.startswith("["):
        return Failure(told, FAILED)
    return Failure(f"[edgewise] unforeseen {type(error).__name__}: {told}", DEFECT, is_defect=True)


def _not_installed(error: ModuleNotFoundError) -> str:
    told = str(error)
    if told.startswith("["):
        return told
    if (error.name or "").startswith("edgewise."):
        from edgewise.lazy import explained

        return str(explained("edgewise", error))
    name = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(name) or _extra_of_backend(name)
    way = f"pip install 'edgewise[{extra}]'" if extra else f"pip install {name}"
    return f"[edgewise] this needs the module {name!r}, which is not installed; try {way}"


def _extra_of_backend(module: str) -> str:
    from edgewise.registry import backends

    return next((one.extra for one in backends() if module in one.modules), "")


def _of_file(error: OSError) -> str:
    name = f" {error.filename}" if error.filename else ""
    told = error.strerror or str(error)
    for where in ("[load_program] ", "[save] "):
        told = told.removeprefix(where)
    folder = os.path.dirname(str(error.filename or ""))
    known = "folder" in told
    if error.errno == errno.ENOENT and folder and not os.path.isdir(folder) and not known:
        told += f"; there is no folder {folder}"
    if error.errno == errno.ENOSPC:
        told += "; try another disk"
    return f"[file]{name}: {told}"
