"""`edgewise doctor`: what is installed, what the processor offers, what is missing."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from edgewise.cli.errors import MISSING, CliError
from edgewise.cli.options import Json, Quiet
from edgewise.cli.output import Output
from edgewise.cli.tables import facts, size, table
from edgewise.cli.version import version_text
from edgewise.registry import Tools, backends

_PURPOSES = {
    "": "runs files",
    "cli": "this command",
    "export": "compiles models",
    "llm": "tokenizers, chats and grammars of language models",
    "serve": "answers clients of OpenAI's interface",
    "peer": "compares with ExecuTorch and ONNX Runtime",
    "models": "models to try",
    "model-explorer": "shows files in Google's Model Explorer",
    "scale": "sweeps over many models",
    "ray": "sweeps on a cluster",
    "docs": "makes the documentation",
    "dev": "develops edgewise",
}
_X86 = "sse4_1 avx f16c fma avx2 avx512f avx512bw avx512_vnni avx512_fp16 avx_vnni amx_int8"
_FEATURES = {
    "x86_64": _X86.split(),
    "aarch64": ["asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"],
}
"""What XNNPACK has kernels for, as Linux names it."""


@dataclass(frozen=True)
class Package:
    """A package that an extra asks for. status: "ok", "missing" or "other version"."""

    extra: str
    name: str
    wanted: str
    installed: str | None
    status: str


def command(
    need: Annotated[
        list[str] | None,
        typer.Option(
            "--need", metavar="EXTRA", help="Exit with 3 unless this extra is complete; repeatable."
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What is installed, what the processor offers, what is missing and how to get it."""
    out = Output(json=json, quiet=quiet)
    packages = _packages()
    extras = list(dict.fromkeys(p.extra for p in packages))
    unknown = [name for name in need or [] if name not in extras]
    if unknown:
        raise CliError(
            f"[--need] must be an extra: {', '.join(e for e in extras if e)}; got {unknown[0]!r}"
        )
    runtime, processor = _runtime(), _processor()
    data = {
        "edgewise": version_text(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "processor": processor,
        "runtime": runtime,
        "packages": [asdict(p) for p in packages],
        **{tools.kind: list(tools.found) for tools in _tools()},
    }
    out.result(data, lambda console: _show(console, data, packages))
    lacking = [name for name in need or [] if _lacks(packages, name)]
    if lacking:
        raise CliError(
            f"[--need] must be complete: {', '.join(lacking)}; "
            f"try pip install 'edgewise[{','.join(lacking)}]'",
            MISSING,
        )


def _packages() -> list[Package]:
    """What the installed package says it needs, by extra."""
    try:
        wanted = metadata.requires("edgewise") or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for requirement in wanted:
        text, _, marker = requirement.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        match = re.match(r"\s*([A-Za-z0-9._-]+)\s*\(?([^)]*)", text)
        assert match is not None
        name, versions = match[1], match[2].strip()
        try:
            installed: str | None = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed = None
        status = "missing" if installed is None else "ok"
        if installed is not None and not _is_within(installed, versions):
            status = "other version"
        found.append(Package(extra[1] if extra else "", name, versions, installed, status))
    return found


def _is_within(installed: str, versions: str) -> bool:
    """Whether the version is one of those wanted: `>=1.2,<2`, `==1.2.3`."""
    have = _numbers(installed)
    for part in filter(None, versions.split(",")):
        match = re.match(r"\s*(>=|<=|==|<|>|~=)\s*([0-9.]+)", part)
        if match is None:
            continue
        bound = _numbers(match[2])
        length = max(len(have), len(bound))
        one, other = (v + (0,) * (length - len(v)) for v in (have, bound))
        holds = {
            ">=": one >= other,
            "<=": one <= other,
            "==": one == other,
            "<": one < other,
            ">": one > other,
            "~=": one >= other and have[: len(bound) - 1] == bound[:-1],
        }
        if not holds[match[1]]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9.]+", version)
    return tuple(int(n) for n in (match[0] if match else "0").split(".") if n)


def _lacks(packages: list[Package], extra: str) -> bool:
    return any(p.status != "ok" for p in packages if p.extra == extra)


def _runtime() -> dict[str, Any]:
    try:
        from edgewise.runtime import Runtime, _native
    except ImportError as missing:
        return {"available": False, "problem": str(missing)}
    runtime = Runtime.get()
    backends = runtime.backend_registry
    return {
        "available": True,
        "backends": {
            name: backends.is_available(name) for name in backends.registered_backend_names
        },
        "operators": len(runtime.operator_registry.operator_names),
        "cpu_level": _native.cpu_level(),
        "cpu_levels": _native.cpu_levels(),
    }


def _tools() -> list[Tools]:
    return [tools for one in backends() if (tools := one.tools()) is not None]


def _purpose(extra: str) -> str:
    found = {one.extra: one.purpose for one in backends() if one.extra} | _PURPOSES
    return found.get(extra, "")


def _processor() -> dict[str, Any]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    fields: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    machine = platform.machine()
    known = _FEATURES.get(machine, ())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "name": fields.get("model name") or platform.processor() or machine,
        "architecture": machine,
        "cores": cores,
        "features": [name for name in known if name in flags],
        "without": [name for name in known if name not in flags],
        "memory_bytes": _memory(),
    }


def _memory() -> int:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0


def _show(console: Console, data: dict[str, Any], packages: list[Package]) -> None:
    processor, runtime = data["processor"], data["runtime"]
    console.print(
        facts(
            [
                ("edgewise", data["edgewise"]),
                ("Python", f"{data['python']}, {data['executable']}"),
                ("system", data["system"]),
                ("processor", f"{processor['name']}, {processor['cores']} cores"),
                ("features", " ".join(processor["features"]) or "none that are known"),
                ("without", " ".join(processor["without"]) or "-"),
                ("memory", size(processor["memory_bytes"])),
                ("runtime", _told(runtime)),
            ]
        )
    )
    console.print()
    styles = {"ok": "green", "missing": "yellow", "other version": "red"}
    rows = []
    for extra in dict.fromkeys(p.extra for p in packages):
        for number, one in enumerate(p for p in packages if p.extra == extra):
            purpose = _purpose(extra) if not number else ""
            label = (extra or "(always)") if not number else ""
            status = Text(one.status, styles[one.status])
            rows.append((label, purpose, one.name, one.installed, one.wanted, status))
    columns = ["extra", "for", "package", "installed", "wanted", "!"]
    console.print(table(columns, rows))
    lacking = [e for e in dict.fromkeys(p.extra for p in packages) if e and _lacks(packages, e)]
    if not packages:
        console.print("edgewise runs from its sources: pip knows nothing of it", style="yellow")
    for extra in lacking:
        console.print(f"{extra}: pip install 'edgewise[{extra}]'   {_purpose(extra)}", markup=False)
    for tools in _tools():
        if not tools.found:
            console.print(tools.advice, style="dim")


def _told(runtime: dict[str, Any]) -> str | Text:
    if not runtime["available"]:
        return Text(
            f"not built: {runtime['problem']}; try pip install edgewise, or make native", "red"
        )
    backends = ", ".join(
        name + ("" if there else " (not on this machine)")
        for name, there in runtime["backends"].items()
    )
    levels = ", ".join(runtime["cpu_levels"])
    return (
        f"{runtime['operators']} kernels for {runtime['cpu_level']} (of {levels}); "
        f"backends: {backends or 'none'}"
    )
