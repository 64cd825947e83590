"""Names of backends, as `edgewise.compile` and the command line take them. Imports no torch."""

from __future__ import annotations

from difflib import get_close_matches

ON_HOST = "-reference"
"""Behind a target of Neutron: without NXP's converter, for this machine."""
NEUTRON = "neutron-"
ETHOS_U = "ethos-u"
PLAIN = ("xnnpack", "none")


def backend_names() -> list[str]:
    """All of them. Neutron's converter, where it is installed, may know further targets."""
    from edgewise.backends.ethosu.targets import TARGETS as ETHOS_U_TARGETS
    from edgewise.backends.neutron.targets import TARGETS as NEUTRON_TARGETS

    neutron = [NEUTRON + name for name in NEUTRON_TARGETS]
    described = [
        NEUTRON + target.name + ON_HOST
        for target in NEUTRON_TARGETS.values()
        if target.macs is not None
    ]
    return [*PLAIN, *ETHOS_U_TARGETS, *neutron, *described]


def check_backends(where: str, given: object) -> tuple[str, ...]:
    """Names that are asked in order, from a list or a text with commas between them.

    Raises as `check_backend`; ValueError for none, for one twice, for "none" among others.
    """
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)):
        names = [names]
    found = tuple(check_backend(where, n.strip() if isinstance(n, str) else n) for n in names)
    if not found or len(set(found)) < len(found) or ("none" in found and len(found) > 1):
        raise ValueError(
            f"[{where}] several backends must be different ones, in the order in which they are "
            f"asked; got {given!r}; try 'ethos-u55-128,xnnpack'"
        )
    return found


def check_backend(where: str, name: object) -> str:
    """The name. ValueError if it is none of a backend; TypeError if it is no string.

    where: what the message starts with.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"[{where}] backend must be a name, such as 'xnnpack'; got {type(name).__name__}; "
            f"try edgewise.to_edge_transform_and_lower for partitioners of your own"
        )
    known = backend_names()
    if name.lower().startswith(ETHOS_U) and name.lower() in known:
        return name.lower()
    # The converter may know more chips than the table: it is asked later.
    is_neutron = name.startswith(NEUTRON) and not name.endswith(ON_HOST)
    if name in known or (is_neutron and name != NEUTRON):
        return name
    near = get_close_matches(name.lower().replace("_", "-"), known, n=3, cutoff=0.6)
    if name.lower().startswith("ethos") and not near:
        near = [one for one in known if one.startswith(ETHOS_U)]
    if not near:
        near = ["xnnpack"]  # CPUs
    hint = f"; try {' or '.join(repr(one) for one in near)}"
    raise ValueError(
        f"[{where}] backend must be one of {', '.join(PLAIN)}, or a target of Ethos-U "
        f"('ethos-u55-128') or Neutron ('neutron-imxrt700'); got {name!r}{hint}"
    )
