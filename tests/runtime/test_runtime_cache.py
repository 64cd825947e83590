"""Packed weights on disk: cache_dir."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import edgewise
from edgewise.runtime import Runtime, Verification, _native

HEADER = 4096


class Net(torch.nn.Module):
    """What each packer takes: Winograd, depthwise, GEMM, and XNNPACK's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(32, 32, 3, padding=1),
            torch.nn.Conv2d(32, 32, 3, padding=1, groups=32),
            torch.nn.Conv2d(32, 48, 1),
            torch.nn.Conv2d(48, 8, 5, stride=3, dilation=2),
            torch.nn.Flatten(),
            torch.nn.Linear(8 * 6 * 6, 16),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


X = np.random.default_rng(0).standard_normal((1, 32, 24, 24)).astype(np.float32)


@pytest.fixture(scope="module")
def float_pte() -> bytes:
    torch.manual_seed(0)
    return bytes(edgewise.compile(Net().eval(), (torch.from_numpy(X),), backend="xnnpack").buffer)


@pytest.fixture(scope="module")
def int8_pte() -> bytes:
    torch.manual_seed(1)
    example = (torch.from_numpy(X),)
    lowered = edgewise.compile(
        Net().eval(), example, backend="xnnpack", quantize="int8", calibration=[example]
    )
    return bytes(lowered.buffer)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path, float_pte: bytes) -> Path:
    path = tmp_path / "model.pte"
    path.write_bytes(float_pte)
    return path


def run(program: Path | bytes, cache: Path | None, **options: object) -> np.ndarray:
    loaded = Runtime.get().load_program(program, threads=2, cache_dir=cache, **options)
    (result,) = loaded.load_method("forward").execute([X])
    return result


def silently(program: Path | bytes, cache: Path, **options: object) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return run(program, cache, **options)


def entries(cache: Path) -> list[Path]:
    """What was packed, the largest first."""
    found = [p for p in cache.glob("packed/*/*") if len(p.name) == 64]
    return sorted(found, key=lambda p: (-p.stat().st_size, p.name))


def stamps(cache: Path) -> list[tuple[str, int, int]]:
    return [(p.name, p.stat().st_ino, p.stat().st_mtime_ns) for p in entries(cache)]


def in_process(
    program: Path, cache: Path, *, before: str = "", **environment: str
) -> tuple[float, str]:
    """Loads and runs in a process of its own; the sum of its result's magnitudes, and warnings."""
    code = f"""
import warnings
import numpy as np
from edgewise.runtime import Runtime
x = np.random.default_rng(0).standard_normal((1, 32, 24, 24)).astype(np.float32)
{before}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    program = Runtime.get().load_program({str(program)!r}, threads=2, cache_dir={str(cache)!r})
    result = program.load_method("forward").execute([x])[0]
print(float(abs(result).sum()), *[warning.message for warning in told], sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    total, _, told = done.stdout.partition("\n")
    return float(total), told.strip()


@pytest.mark.parametrize("source", ["path", "bytes", "int8"])
def test_a_second_load_maps_what_the_first_one_packed(
    source: str, cache: Path, model: Path, int8_pte: bytes
) -> None:
    program = {"path": model, "bytes": model.read_bytes(), "int8": int8_pte}[source]
    expected = run(program, None)
    first = silently(program, cache)
    packed = stamps(cache)
    assert len(packed) >= 4
    second = silently(program, cache)
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second, expected)
    assert stamps(cache) == packed
    assert {p.stat().st_mode & 0o777 for p in entries(cache)} == {0o600}
    assert (
        (cache / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806")
    )


def test_entries_are_named_by_the_contents_of_the_file(
    cache: Path, model: Path, tmp_path: Path
) -> None:
    silently(model, cache)
    (folder,) = (cache / "packed").iterdir()
    assert folder.name == hashlib.sha256(model.read_bytes()).hexdigest()
    for entry in entries(cache):
        data = entry.read_bytes()
        magic, version, size = struct.unpack_from("8sI4xQ", data)
        assert (magic, version, size) == (b"edgepack", 1, len(data) - HEADER)
        assert data[24:56].hex() == entry.name
        assert data[56:88] == hashlib.sha256(data[HEADER:]).digest()
    packed = stamps(cache)
    copy = tmp_path / "copy.pte"
    copy.write_bytes(model.read_bytes())
    silently(copy, cache)
    assert stamps(cache) == packed


def test_a_file_that_changed_is_another_one(cache: Path, model: Path, float_pte: bytes) -> None:
    silently(model, cache)
    time.sleep(0.05)
    silently(model, cache)  # remembers what the file is
    torch.manual_seed(0)
    weights = Net().layers[5].weight.detach().numpy().tobytes()
    assert float_pte.count(weights) == 1
    other = float_pte.replace(weights, np.full(len(weights) // 4, 3, np.float32).tobytes())
    stat = model.stat()
    with model.open("r+b") as file:  # in place: the same inode and size
        file.write(other)
    os.utime(model, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # and, so it says, the same age
    np.testing.assert_array_equal(silently(model, cache), run(other, None))
    assert len(list((cache / "packed").iterdir())) == 2


def overwrite(change: Callable[[bytearray], bytes]) -> Callable[[Path, Path], None]:
    def damage(entry: Path, _: Path) -> None:
        entry.write_bytes(change(bytearray(entry.read_bytes())))

    return damage


def flipped(at: int) -> Callable[[bytearray], bytes]:
    def change(data: bytearray) -> bytes:
        data[at] ^= 0xFF
        return bytes(data)

    return change


DAMAGE: dict[str, Callable[[Path, Path], object]] = {
    "a byte of the contents": overwrite(lambda d: flipped(HEADER + (len(d) - HEADER) // 2)(d)),
    "the last byte": overwrite(flipped(-1)),
    "the magic": overwrite(flipped(0)),
    "the version": overwrite(flipped(8)),
    "the size": overwrite(flipped(16)),
    "the key": overwrite(flipped(24)),
    "the hash": overwrite(flipped(56)),
    "cut short": overwrite(lambda d: bytes(d[: len(d) // 2])),
    "cut within the header": overwrite(lambda d: bytes(d[:100])),
    "empty": overwrite(lambda d: b""),
    "longer": overwrite(lambda d: bytes(d) + b"more"),
    "zeros": overwrite(lambda d: bytes(len(d))),
    "a text": overwrite(lambda d: b"hello\n" * 2000),
    "another entry": lambda entry, other: shutil.copyfile(other, entry),
    "a pipe": lambda entry, _: (entry.unlink(), os.mkfifo(entry)),
}


def test_after_the_system_was_started_anew_contents_are_compared_once(
    cache: Path, model: Path
) -> None:
    """A record says in which start of the system it was made; zeros: that any will do."""
    expected = silently(model, cache)
    time.sleep(0.03)
    silently(model, cache)
    records = [*cache.glob("files/*"), *cache.glob("packed/*/*.known")]
    boots = {record.read_bytes()[64:100] for record in records}
    assert boots == {Path("/proc/sys/kernel/random/boot_id").read_bytes()[:36]}
    for record in records:
        data = bytearray(record.read_bytes())
        data[64:100] = b"another".ljust(36, b".")
        data[136:] = hashlib.sha256(data[:136]).digest()
        record.write_bytes(data)
    np.testing.assert_array_equal(silently(model, cache), expected)
    assert {record.read_bytes()[64:104] for record in records} == {bytes(40)}
    np.testing.assert_array_equal(silently(model, cache), expected)


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_damaged_is_packed_again(kind: str, cache: Path, model: Path) -> None:
    expected = silently(model, cache)
    time.sleep(0.03)
    silently(model, cache)  # which remembers that all are whole
    largest, other = entries(cache)[:2]
    DAMAGE[kind](largest, other)
    with pytest.warns(RuntimeWarning, match=rf"\[cache\].*{largest.name}.*packed again"):
        np.testing.assert_array_equal(run(model, cache), expected)
    np.testing.assert_array_equal(silently(model, cache), expected)
    assert largest in entries(cache)
    assert not [p.name for p in cache.glob("packed/*/.*")]


def test_damaged_records_are_no_harm(cache: Path, model: Path) -> None:
    expected = silently(model, cache)
    time.sleep(0.03)
    silently(model, cache)
    records = [*cache.glob("files/*"), *cache.glob("packed/*/*.known")]
    assert len(records) > len(entries(cache))
    for i, record in enumerate(records):
        record.write_bytes([flipped(60)(bytearray(record.read_bytes())), b"", bytes(128)][i % 3])
    packed = stamps(cache)
    np.testing.assert_array_equal(silently(model, cache), expected)
    assert stamps(cache) == packed


def test_what_a_stranger_wrote_with_the_right_hashes_crashes_nothing(
    cache: Path, model: Path
) -> None:
    """Contents of another size than the kernels read."""
    in_process(model, cache)
    for size in (0, 1, 100_000):
        for entry in entries(cache):
            contents = b"\x7f" * size
            head = entry.read_bytes()[:16] + struct.pack("Q", size) + bytes.fromhex(entry.name)
            head += hashlib.sha256(contents).digest()
            entry.write_bytes(head.ljust(HEADER, b"\0") + contents)
        in_process(model, cache)  # raises if the process dies


def test_two_processes_at_once(cache: Path, model: Path) -> None:
    expected = run(model, None)
    command = [sys.executable, "-c", "import sys; exec(sys.argv[1])"]
    code = (
        "import numpy as np; from edgewise.runtime import Runtime\n"
        "x = np.random.default_rng(0).standard_normal((1, 32, 24, 24)).astype(np.float32)\n"
        "for i in range(4):\n"
        f"  p = Runtime.get().load_program({str(model)!r}, threads=2, cache_dir={str(cache)!r})\n"
        "  y = p.load_method('forward').execute([x])[0]\n"
        "print(y.tobytes().hex())"
    )
    started = [
        subprocess.Popen([*command, code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in started:
        out, err = process.communicate()
        assert (process.returncode, err.decode()) == (0, "")
        assert bytes.fromhex(out.decode()) == expected.tobytes()
    assert not [p.name for p in cache.glob("packed/*/.*")]


def test_processes_share_the_memory(cache: Path, model: Path) -> None:
    silently(model, cache)
    program = Runtime.get().load_program(model, cache_dir=cache)
    method = program.load_method("forward")
    maps = Path("/proc/self/maps").read_text()
    for entry in entries(cache):
        (line,) = [line for line in maps.splitlines() if line.endswith(str(entry))]
        assert line.split()[1] == "r--p"
    del method


@pytest.mark.skipif(len(_native.cpu_levels()) < 3, reason="a CPU of one level")
def test_each_cpu_level_packs_for_itself(cache: Path, model: Path) -> None:
    silently(model, cache)
    packed = stamps(cache)
    level = _native.cpu_levels()[-3]
    first, told = in_process(model, cache, EDGEWISE_CPU=level)
    assert told == ""
    assert first == pytest.approx(float(abs(run(model, None)).sum()), rel=1e-4)
    assert len(entries(cache)) > len(packed)
    more = stamps(cache)
    assert set(packed) < set(more)
    assert in_process(model, cache, EDGEWISE_CPU=level) == (first, "")
    assert stamps(cache) == more


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda cache: cache.write_text("a file"), "cannot be made|must be a folder"),
        (lambda cache: (cache.mkdir(), cache.chmod(0o777)), "others cannot write to"),
        (
            lambda cache: (
                cache.mkdir(),
                (cache / "packed").mkdir(),
                (cache / "packed").chmod(0o777),
            ),
            "others must not write to it",
        ),
    ],
    ids=["a file", "others write", "others write to a part"],
)
def test_a_folder_that_cannot_be_used_is_a_warning(
    make: Callable[[Path], object], text: str, cache: Path, model: Path
) -> None:
    make(cache)
    expected = run(model, None)
    with pytest.warns(RuntimeWarning, match=text):
        np.testing.assert_array_equal(run(model, cache), expected)
    assert not cache.is_dir() or not entries(cache)


def test_a_full_disk_is_a_warning(cache: Path, model: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    _, told = in_process(model, cache, before=limit)
    assert "cannot be written to: File too large; packed weights are not kept" in told
    assert told.count("[cache]") == 1
    assert not [p.name for p in cache.glob("packed/*/.*")]
    assert in_process(model, cache)[1] == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user")
def test_a_folder_that_is_only_read(model: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        program = Path(folder) / "model.pte"
        program.write_bytes(model.read_bytes())
        Path(folder).chmod(0o755)
        silently(program, cache)
        packed = stamps(cache)
        for path in [cache, *cache.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        nobody = "import os; os.setegid(65534); os.seteuid(65534)"
        assert in_process(program, cache, before=nobody)[1] == ""
        assert stamps(cache) == packed
        for entry in entries(cache)[:1]:
            entry.unlink()
        assert in_process(program, cache, before=nobody)[1] == ""


def test_what_was_used_least_lately_is_removed(cache: Path, model: Path, int8_pte: bytes) -> None:
    silently(model, cache)
    silently(int8_pte, cache)
    first, second = (
        cache / "packed" / hashlib.sha256(d).hexdigest() for d in (model.read_bytes(), int8_pte)
    )
    (cache / "packed" / "notes.txt").write_text("not the cache's")
    for path, age in ((first, 100), (second, 50)):
        os.utime(path, (time.time() - age,) * 2)
    third = bytearray(model.read_bytes()) + b"\0"
    bound = sum(p.stat().st_size for p in entries(cache)) + 20_000  # and some records
    silently(bytes(third), cache, cache_bytes=bound)
    assert not first.exists()
    assert second.exists()
    assert (cache / "packed" / "notes.txt").exists()
    assert (cache / "packed" / hashlib.sha256(third).hexdigest()).exists()


def test_a_program_that_is_larger_than_the_bound(cache: Path, model: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"cache_bytes is 30000; .* not all kept"):
        result = run(model, cache, cache_bytes=30_000)
    np.testing.assert_array_equal(result, run(model, None))
    assert sum(p.stat().st_size - HEADER for p in entries(cache)) <= 30_000


def test_full_verification_compares_all_contents(cache: Path, model: Path) -> None:
    expected = silently(model, cache)
    time.sleep(0.03)
    np.testing.assert_array_equal(silently(model, cache, verification=Verification.Full), expected)


@pytest.mark.parametrize("value", [3, "", "a\0b"])
def test_no_folder(value: object, model: Path) -> None:
    with pytest.raises((TypeError, ValueError), match="cache_dir must be"):
        Runtime.get().load_program(model, cache_dir=value)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, None])
def test_no_bound(value: object, model: Path, cache: Path) -> None:
    with pytest.raises(ValueError, match="cache_bytes must be"):
        Runtime.get().load_program(model, cache_dir=cache, cache_bytes=value)


def test_load_takes_it(cache: Path, model: Path) -> None:
    edgewise.load(model, cache_dir=str(cache))(X)
    assert entries(cache)
