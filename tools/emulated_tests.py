"""Native tests on an x86 CPU with AVX-512, where there is none: in Bochs, which plays a whole PC.

python tools/emulated_tests.py [--cpu MODEL] [--minutes N] [TEST[:FILTER] ...]

TEST is part of the names of binaries in build/dev/native/tests, FILTER one for GoogleTest. The
machine boots Debian's kernel from a CD that is made here, with the tests in its first file system;
what they print comes by the serial port. Where a core is free for it, it starts within a
minute; tests take some hundred times as long as on a CPU. Models of other CPUs: `bochs --help cpu`.
Debian's kernel does not start on Bochs 2.7's Ice Lake and Tiger Lake, so that AVX512-VNNI cannot be
played.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "build/dev/native/tests"
KERNEL = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "edgewise/linux-x86_64"
PACKAGES = {  # what is used of each
    "bochs": "/usr/bin/bochs",
    "bochsbios": "/usr/share/bochs/BIOS-bochs-latest",
    "vgabios": "/usr/share/vgabios/vgabios.bin",
    "isolinux": "/usr/lib/ISOLINUX/isolinux.bin",
    "syslinux-common": "/usr/lib/syslinux/modules/bios/ldlinux.c32",
    "genisoimage": "/usr/bin/genisoimage",
    "cpio": "/usr/bin/cpio",
    "busybox-static": "/bin/busybox",
}
# Those whose kernels differ with AVX-512, and that take minutes.
USUAL = ("unary_functions", "weight_only", "half", "fused_kernels", "elementwise_fusion")

INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox grep -m1 "model name" /proc/cpuinfo
{commands}
echo "ended all"
/bin/busybox sleep 3600
"""
BOOT = """DEFAULT linux
LABEL linux
 KERNEL /vmlinuz
 INITRD /initrd.gz
 APPEND console=ttyS0 quiet mitigations=off nokaslr lsm=capability panic=-1
"""
MACHINE = """megs: 1024
romimage: file={bochsbios}
vgaromimage: file={vgabios}
ata0-master: type=cdrom, path={folder}/cd.iso, status=inserted
boot: cdrom
cpu: model={cpu}, count=1, ips=100000000
clock: sync=none
com1: enabled=1, mode=file, dev={folder}/serial
display_library: rfb, options="timeout=0"
log: {folder}/log
panic: action=fatal
error: action=ignore
info: action=ignore
"""


def run(command: list[str | Path], **settings: object) -> None:
    subprocess.run(command, check=True, **settings)  # type: ignore[call-overload]


def install() -> None:
    missing = [name for name, path in PACKAGES.items() if not Path(path).exists()]
    if missing:
        run(
            [ROOT / "tools/apt_install.sh", "emulated", "a PC that Bochs plays", *missing], cwd=ROOT
        )


def kernel() -> Path:
    """Debian's, of the kind for virtual machines, which is small; downloaded once."""
    found = sorted(KERNEL.glob("boot/vmlinuz-*"))
    if found:
        return found[-1]
    depends = subprocess.run(
        ["apt-cache", "depends", "linux-image-cloud-amd64"], capture_output=True, text=True
    )
    names = re.findall(r"linux-image-\d\S*-cloud-amd64", depends.stdout)
    if not names:
        sys.exit("[emulated] apt must know linux-image-cloud-amd64; try apt-get update")
    with tempfile.TemporaryDirectory() as folder:
        run(["apt-get", "-q", "download", names[0]], cwd=folder, stdout=subprocess.DEVNULL)
        KERNEL.mkdir(parents=True, exist_ok=True)
        (package,) = Path(folder).glob("*.deb")
        run(["dpkg-deb", "-x", package, KERNEL])
    return kernel()


def binaries(asked: list[str]) -> list[tuple[Path, str]]:
    """Each with its filter."""
    found = []
    for item in asked:
        name, _, kept = item.partition(":")
        matching = sorted(p for p in TESTS.glob(f"*{name}*_test") if os.access(p, os.X_OK))
        if not matching:
            sys.exit(
                f"[emulated] no test is named so; got {name!r}; try one of {TESTS}, `make ctest`"
            )
        found += [(path, kept or "*") for path in matching]
    return found


def make_cd(folder: Path, tests: list[tuple[Path, str]]) -> None:
    root, cd = folder / "root", folder / "cd"
    for name in ("bin", "proc", "sys", "dev", "tmp", "tests"):
        (root / name).mkdir(parents=True)
    (cd / "isolinux").mkdir(parents=True)
    shutil.copy(PACKAGES["busybox-static"], root / "bin")
    commands = []
    for path, kept in tests:
        run(["strip", "-o", root / "tests" / path.name, path])
        linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"/\S+", linked):
            target = root / library[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
        commands.append(
            f"/tests/{path.name} --gtest_brief=1 '--gtest_filter={kept}'\n"
            f'echo "ended {path.name} $?"'
        )
    init = root / "init"
    init.write_text(INIT.format(commands="\n".join(commands)))
    init.chmod(0o755)
    files = "\n".join(str(p.relative_to(root)) for p in [root, *root.rglob("*")])
    with (cd / "initrd.gz").open("wb") as to:
        archive = subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"],
            cwd=root, input=files.encode(), capture_output=True, check=True,
        )  # fmt: skip
        run(["gzip", "-1"], input=archive.stdout, stdout=to)
    shutil.copy(kernel(), cd / "vmlinuz")
    shutil.copy(PACKAGES["isolinux"], cd / "isolinux")
    shutil.copy(PACKAGES["syslinux-common"], cd / "isolinux")
    (cd / "isolinux/isolinux.cfg").write_text(BOOT)
    boot = ["-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat", "-no-emul-boot"]
    table = ["-boot-load-size", "4", "-boot-info-table"]
    run(["genisoimage", "-quiet", "-o", folder / "cd.iso", *boot, *table, cd])


def play(folder: Path, cpu: str, seconds: float) -> str:
    """What the machine printed, once it has ended all or the time is over."""
    (folder / "machine").write_text(MACHINE.format(folder=folder, cpu=cpu, **PACKAGES))
    serial, shown = folder / "serial", 0
    with (folder / "console").open("w") as console:
        machine = subprocess.Popen(
            ["bochs", "-q", "-f", folder / "machine"],
            stdin=subprocess.PIPE, stdout=console, stderr=console, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert machine.stdin is not None
        machine.stdin.write("c\n")  # its debugger waits for that
        machine.stdin.flush()
        end, text = time.monotonic() + seconds, ""
        try:
            while machine.poll() is None and time.monotonic() < end and "ended all" not in text:
                time.sleep(1)
                text = serial.read_text(errors="replace") if serial.exists() else ""
                print(text[shown:], end="", flush=True)
                shown = len(text)
        finally:
            os.killpg(machine.pid, 9)
            machine.wait()
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("tests", nargs="*", default=list(USUAL), metavar="TEST[:FILTER]")
    parser.add_argument("--cpu", default="corei7_skylake_x", metavar="MODEL")
    parser.add_argument("--minutes", type=float, default=60, help="then it is given up")
    options = parser.parse_args()
    tests = binaries(options.tests)
    install()
    with tempfile.TemporaryDirectory() as name:
        make_cd(Path(name), tests)
        text = play(Path(name), options.cpu, 60 * options.minutes)
    ended = dict(re.findall(r"^ended (\w+) (\d+)", text, re.MULTILINE))
    failed = [path.name for path, _ in tests if ended.get(path.name) != "0"]
    print(f"{len(tests) - len(failed)} of {len(tests)} tests passed on {options.cpu}")
    for test in failed:
        print(f"[emulated] {test} {'failed' if test in ended else 'did not end'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
