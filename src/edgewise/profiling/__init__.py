"""Where the time of a program's runs goes: by instruction, and by operator inside delegates.

    with edgewise.profile() as profile:
        for _ in range(20):
            model(x)
    print(profile)
    profile.save("profile.json")
    profile.save_trace("trace.json")  # opens in Perfetto and chrome://tracing
    profile.save_etdump("profile.etdp")  # for ExecuTorch's Inspector

`read_etdump` reads what ExecuTorch's runtime recorded. Imports no torch.
"""

from edgewise.profiling.etdump import read_etdump
from edgewise.profiling.recording import profile
from edgewise.profiling.result import Profile, read_profile
from edgewise.profiling.runs import Event, Instruction, MethodRuns, Part, Run

__all__ = [
    "Event",
    "Instruction",
    "MethodRuns",
    "Part",
    "Profile",
    "Run",
    "profile",
    "read_etdump",
    "read_profile",
]
