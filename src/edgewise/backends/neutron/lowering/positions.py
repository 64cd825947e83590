"""What positional arguments mean, which changed between releases of ExecuTorch.

Its functions for compile specifications took a converter's flavor first (1.0, 1.1), then none;
options came between others. What is given by position is matched with each release's order, the
newest first, by type: the orders differ in where flavors, flags, names and folders stand.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
Layout = Sequence[str]

GENERATE: tuple[Layout, ...] = (
    (
        "system_config",
        "extra_flags",
        "intermediates_dir",
        "operators_not_to_delegate",
        "use_neutron_for_format_conversion",
        "fetch_constants_to_sram",
        "dump_kernel_selection_code",
        "use_profiling",
    ),  # 1.4
    (
        "system_config",
        "extra_flags",
        "operators_not_to_delegate",
        "use_neutron_for_format_conversion",
        "fetch_constants_to_sram",
        "dump_kernel_selection_code",
    ),  # 1.2, 1.3
    (
        "neutron_converter_flavor",
        "system_config",
        "extra_flags",
        "operators_not_to_delegate",
        "use_neutron_for_format_conversion",
    ),  # 1.0, 1.1
)
"""Behind `config`, of `generate_neutron_compile_spec`."""

BUILD: tuple[Layout, ...] = (
    (
        "intermediates_dir",
        "extra_flags",
        "operators_not_to_delegate",
        "use_neutron_for_format_conversion",
        "fetch_constants_to_sram",
        "dump_kernel_selection_code",
        "use_profiling",
    ),  # 1.4
    (
        "extra_flags",
        "operators_not_to_delegate",
        "use_neutron_for_format_conversion",
        "fetch_constants_to_sram",
        "dump_kernel_selection_code",
    ),  # 1.2, 1.3
    (
        "neutron_converter_flavor",
        "extra_flags",
        "operators_not_to_delegate",
        "use_neutron_for_format_conversion",
    ),  # 1.0, 1.1
)
"""Behind `config`, of `NeutronCompileSpecBuilder.neutron_compile_spec`."""

_FLAVOR = re.compile(r"(SDK_\w+|neutron_converter_\w+|eiq_neutron_sdk|reference)")
_FLAGS = re.compile(r"-.*|.*=.*|")


def _is_flavor(value: Any) -> bool:
    return isinstance(value, str) and bool(_FLAVOR.fullmatch(value))


def _is_folder(value: Any) -> bool:
    """A word alone may be a flag, too; where both may stand it is a folder, which must exist."""
    if isinstance(value, str):
        return not (_is_flavor(value) or _FLAGS.fullmatch(value))
    return isinstance(value, os.PathLike)


def _is_names(value: Any) -> bool:
    return not isinstance(value, str) and isinstance(value, Sequence)


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "neutron_converter_flavor": _is_flavor,
    # Nothing depends on it, in no release: what stands there and is not None may be meant for
    # something else.
    "system_config": lambda v: False,
    "extra_flags": lambda v: isinstance(v, str) and not _is_flavor(v),
    "intermediates_dir": _is_folder,
    "operators_not_to_delegate": _is_names,
}


def in_the_order_of_any_release(layouts: Sequence[Layout]) -> Callable[[F], F]:
    """For a function whose options are given by name: behind `config` (its first argument, or the
    one behind `self`) they may also be given by position, in the order of a release."""

    def decorate(function: F) -> F:
        known = list(inspect.signature(function).parameters).index("config") + 1

        @functools.wraps(function)
        def call(*given: Any, **options: Any) -> Any:
            by_name = _named(function.__name__, given[known:], layouts, options)
            return function(*given[:known], **by_name)

        return cast(F, call)

    return decorate


def _named(
    where: str, given: Sequence[Any], layouts: Sequence[Layout], by_name: Mapping[str, Any]
) -> dict[str, Any]:
    """The options by name: those given by position, in the first order that fits, with `by_name`.

    TypeError if no release had such an order.
    """
    for layout in layouts:
        pairs = dict(zip(layout, given, strict=False))
        if len(given) > len(layout) or pairs.keys() & by_name.keys():
            continue
        if all(value is None or _fits(name, value) for name, value in pairs.items()):
            return {**pairs, **by_name}
    shown = ", ".join(map(repr, given))
    names = sorted({name for layout in layouts for name in layout} - {"system_config"})
    raise TypeError(
        f"[{where}] arguments by position must be in the order of a release of ExecuTorch; "
        f"got {shown}; try them by name: {', '.join(f'{name}=...' for name in names)}"
    )


def _fits(name: str, value: Any) -> bool:
    return _FITS[name](value) if name in _FITS else isinstance(value, bool)
