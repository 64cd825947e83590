"""NXP's converter: found by flavor, run in a process of its own.

The converter is proprietary; NXP hands it out as the Python package `eiq_neutron_sdk`, and before
2026 as one package for each MCUXpresso SDK, `neutron_converter_SDK_25_06` and the like.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgewise.backends.neutron.lowering.compile_spec import NeutronOptions
from edgewise.backends.neutron.lowering.flavors import (
    FLAVOR_PREFIX,
    REFERENCE,
    SDK,
    installed_flavors,
    package_of,
)
from edgewise.backends.neutron.targets import TARGETS, NeutronTarget
from edgewise.errors import EdgewiseError

_MODULES = ("neutron_compiler", "neutron_converter")
KERNEL_SELECTION = "_kernel_selection.c"
TIME_LIMIT = 600.0
"""Seconds that a conversion may take."""
_LOG_LINES = 12
_ON_HOST = f"neutron_converter_flavor={REFERENCE!r}"


class NeutronConverterError(EdgewiseError):
    """NXP's converter is not there, refused a program, crashed, or took too long."""


@dataclass(frozen=True)
class NeutronConverter:
    """An installed converter. `package`: what is imported, in the other process."""

    package: str
    module: str

    def target(self, name: str) -> NeutronTarget | None:
        """What the converter says of a target; None if it does not know it."""
        with tempfile.TemporaryDirectory(prefix="neutron-") as folder:
            described = self._run({"target": name}, Path(folder), 60.0, ())
        found = described["target"]
        if found is None:
            return None
        known = TARGETS.get(name)
        return NeutronTarget(
            name=name,
            core=known.core if known else f"generation {found['hwVersion']}",
            subsystem=bool(found["subsystem"]),
            macs=found["numMacs"] or (known.macs if known else None),
            pipes=found["numPipes"] or (known.pipes if known else None),
        )

    def convert(
        self,
        model: bytes,
        options: NeutronOptions,
        operators: Sequence[str],
        tag: str,
        time_limit: float = TIME_LIMIT,
    ) -> bytes:
        """The program for the NPU, as a TFLite file with one NeutronGraph.

        operators: names of the operators in `model`, for the error message. tag: names the list
        of kernels, which lands in the folder of intermediate files.
        """
        with tempfile.TemporaryDirectory(prefix="neutron-") as folder:
            work = Path(folder)
            (work / "model.tflite").write_bytes(model)
            request = {
                "target": options.config,
                "model": str(work / "model.tflite"),
                "converted": str(work / "converted.tflite"),
                "options": _compilation_options(options),
            }
            described = self._run(request, work, time_limit, operators)
            if described["target"] is None:
                raise _unknown_target(options.config, self, described["names"])
            kernels = work / KERNEL_SELECTION
            if options.dump_kernel_selection_code and kernels.exists():
                to = Path(options.intermediates_dir or ".") / f"_kernel_selection_{tag}.c"
                to.write_bytes(kernels.read_bytes())
            return (work / "converted.tflite").read_bytes()

    def _run(
        self, request: dict[str, Any], work: Path, limit: float, operators: Sequence[str]
    ) -> dict[str, Any]:
        result = work / "result.json"
        request |= {"package": self.package, "module": self.module, "result": str(result)}
        asked = work / "request.json"
        asked.write_text(json.dumps(request))
        command = [
            sys.executable,
            "-m",
            "edgewise.backends.neutron.lowering.converter_process",
            str(asked),
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        try:
            ran = subprocess.run(
                command,
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired as slow:
            raise self._failure(
                f"took longer than {limit:g} s", slow.output or b"", operators
            ) from None
        wanted = request.get("converted")
        if ran.returncode or not result.exists():
            ended = _ending(ran.returncode)
            raise self._failure(ended, ran.stdout, operators)
        described: dict[str, Any] = json.loads(result.read_text())
        if wanted and described["target"] is not None and not Path(wanted).exists():
            # The module calls exit(0) on some errors.
            raise self._failure(_ending(ran.returncode), ran.stdout, operators)
        return described

    def _failure(self, ended: str, log: bytes, operators: Sequence[str]) -> NeutronConverterError:
        lines = [line for line in log.decode(errors="replace").splitlines() if line.strip()]
        blamed = _blamed(lines, operators)
        if blamed:
            where, remedy = blamed, f"operators_not_to_delegate=[{blamed!r}]"
        else:
            where = "a partition of " + ", ".join(operators) if operators else "the target"
            remedy = "leaving operators out with operators_not_to_delegate, or another flavor"
        tail = "".join(f"\n  {line}" for line in lines[-_LOG_LINES:]) or " nothing"
        return NeutronConverterError(
            f"[Neutron converter {self.package}: {where}] a program must convert; got: it {ended}; "
            f"try {remedy}. Its log ends with:{tail}"
        )


def find_converter(flavor: str | None) -> NeutronConverter | None:
    """The converter of a flavor; None: whichever is installed, NXP's present package first.

    None is returned where no converter is wanted ("reference") or none was asked for by name and
    none is installed. NeutronConverterError if the one that was asked for is not installed.
    """
    found = installed_converter(flavor)
    package = package_of(flavor)
    if found is not None or package is None:
        return found
    installed = installed_converters()
    names = ", ".join(c.package.removeprefix(FLAVOR_PREFIX) for c in installed)
    raise NeutronConverterError(
        f"[Neutron] the converter of neutron_converter_flavor={flavor!r} must be installed; got no "
        f"module {package} (installed: {names or 'none'}); try {_how_to_get()}"
    )


def installed_converter(flavor: str | None) -> NeutronConverter | None:
    """As `find_converter`, but None if the one that was asked for is not installed."""
    if flavor == REFERENCE:
        return None
    package = package_of(flavor)
    among = (c for c in installed_converters() if package in (None, c.package))
    return next(among, None)


def required_converter(flavor: str | None, otherwise: str = _ON_HOST) -> NeutronConverter:
    """As `find_converter`, but NeutronConverterError if there is none.

    otherwise: how to ask for a program for the host.
    """
    found = find_converter(flavor)
    if found is None:
        raise NeutronConverterError(
            f"[Neutron] lowering for the NPU needs NXP's converter; got none installed; "
            f"try {_how_to_get(otherwise)}"
        )
    return found


def _how_to_get(otherwise: str = _ON_HOST) -> str:
    return (
        f"installing {SDK} from NXP's package index (see NXP's eIQ Neutron SDK), or "
        f"{otherwise}, which runs on this machine only"
    )


def installed_converters() -> list[NeutronConverter]:
    """Every converter that can be imported: the SDK, then flavors, newest first."""
    packages = [SDK, *sorted(installed_flavors(), key=_version, reverse=True)]
    found = []
    for package in packages:
        spec = find_spec(package)
        folders = None if spec is None else spec.submodule_search_locations
        # Not imported here: that is done in the other process, for the module may crash.
        modules = [
            m for m in _MODULES if folders and PathFinder.find_spec(f"{package}.{m}", folders)
        ]
        if modules:
            found.append(NeutronConverter(package, modules[0]))
    return found


def _version(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _compilation_options(options: NeutronOptions) -> dict[str, Mapping[str, Any]]:
    optional: dict[str, Any] = {
        "minNumOpsPerGraph": 1,
        "excludeGraphPasses": "HoistSliceAboveTranspose,MergeTranspose",
    }
    required: dict[str, Any] = {}
    if options.fetch_constants_to_sram:
        required["fetchConstantsToSRAM"] = True
    if options.dump_kernel_selection_code:
        required["dumpKernelSelectionCode"] = True
    if options.use_profiling:
        required["useProfiling"] = True
        optional |= {"dumpAfterImport": "console", "dumpAfterGenerate": "console", "verbose": True}
    for flag in options.extra_flags:
        name, _, value = flag.lstrip("-").partition("=")
        required[name] = _parsed(value) if value else True
    return {"required": required, "optional": optional}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by signal {-code}"
    return (
        f"ended with exit code {code} and without a result" if code == 0 else f"exited with {code}"
    )


def _blamed(lines: Sequence[str], operators: Sequence[str]) -> str | None:
    """The operator that the log names last."""
    for line in reversed(lines):
        for name in sorted(operators, key=len, reverse=True):
            if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", line):
                return name
    return None


def _unknown_target(
    name: str, converter: NeutronConverter, names: Sequence[str] | None
) -> NeutronConverterError:
    return NeutronConverterError(
        f"[Neutron converter {converter.package}] config must be a target that it knows; "
        f"got {name!r}; try one of {', '.join(names or TARGETS)}"
    )
