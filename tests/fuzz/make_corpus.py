"""Makes the small files from which fuzzing of native code starts: `python
tests/fuzz/make_corpus.py`. What readers in Python start from is made by `make_python_corpus.py`.

One file for each kind of thing that a program may hold: instructions, delegates, constants, state,
shared and external weights, shapes of each dynamism. Files are kept below 8 kB.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import edgewise
from edgewise.format.file import read

FOLDER = Path(__file__).parent / "corpus"


class Fn(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


class Cache(nn.Module):
    """State that a call writes and a later one reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 3))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.cache.index_copy_(0, self.count % 4, x)
        self.count.add_(1)
        return self.cache * 2


def count_to(n: Tensor) -> Any:
    return torch._higher_order_ops.while_loop(
        lambda i, y: i < n,
        lambda i, y: (i + 1, y * 2),
        (torch.zeros((), dtype=torch.int64), torch.ones(3)),
    )


def choose(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


X = torch.linspace(-1, 1, 12).reshape(3, 4)
ROW = torch.ones(1, 3)
BATCH = {0: torch.export.Dim("n", min=1, max=8)}
PORTABLE: dict[str, tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]] = {
    "add": (Fn(lambda x: x + 1), (X,), {}),
    "integers": (Fn(lambda x: (x // 3) << 2), (torch.arange(6),), {}),
    "bools": (Fn(lambda x: (x > 0) & (x < 1)), (X,), {}),
    "reduce": (Fn(lambda x: (x.sum(0), x.amax(1), x.argmin())), (X,), {}),
    "shapes": (Fn(lambda x: torch.cat([x.t(), x.reshape(4, 3)], 1).split(2, 1)), (X,), {}),
    "select": (Fn(lambda x: (x[1:, ::2], x[:, None].expand(3, 2, 4).flip(0))), (X,), {}),
    "gather": (Fn(lambda x, i: (x.gather(1, i), x[i[0]])), (X, torch.zeros(3, 2).long()), {}),
    "scatter": (Fn(lambda x, i: x.scatter_add(1, i, x)), (X, torch.zeros(3, 4).long()), {}),
    "sort": (Fn(lambda x: (x.sort(1), x.topk(2))), (X,), {}),
    "nonzero": (Fn(lambda x: x.nonzero()), (X,), {}),
    "norm": (Fn(lambda x: nn.functional.layer_norm(x, (4,)).softmax(-1)), (X,), {}),
    "products": (Fn(lambda x: torch.einsum("ij,kj->ik", x, x).cumsum(0)), (X,), {}),
    "pool": (nn.Sequential(nn.Conv2d(1, 2, 2), nn.MaxPool2d(2)), (torch.ones(1, 1, 5, 5),), {}),
    "resize": (nn.Upsample(scale_factor=2), (torch.ones(1, 1, 3, 3),), {}),
    "half": (Fn(lambda x: x.half().exp()), (X,), {}),
    "dynamic": (Fn(lambda x: x.relu().sum(1)), (X,), {"dynamic_shapes": ((BATCH,),)}),
    "cache": (Cache(), (ROW,), {}),
    "cond": (Fn(choose), (X,), {}),
    "while": (Fn(count_to), (torch.tensor(3),), {}),
}
XNNPACK: dict[str, tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]] = {
    "linear": (nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 2)), (X,), {}),
    "convolution": (
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU6(), nn.Conv2d(4, 4, 3, groups=4)),
        (torch.ones(1, 3, 6, 6),),
        {},
    ),
    "transposed": (nn.ConvTranspose2d(2, 3, 2, stride=2), (torch.ones(1, 2, 3, 3),), {}),
    "pooling": (
        nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Upsample(scale_factor=2)),
        (torch.ones(1, 2, 8, 8),),
        {},
    ),
    "elementwise": (Fn(lambda x: (x.sigmoid() * x - x.abs().sqrt()).clamp(0, 1)), (X,), {}),
    "shapes": (Fn(lambda x: torch.cat([x.t(), x.t().exp()], 1)[:, 1:].reshape(-1)), (X,), {}),
    "softmax": (Fn(lambda x: x.softmax(-1).mean(1)), (X,), {}),
    "int8": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()),
        (torch.ones(1, 3, 6, 6),),
        {"quantize": "int8", "calibration": [torch.ones(1, 3, 6, 6)]},
    ),
    "int8_dynamic": (nn.Linear(8, 4), (torch.ones(2, 8),), {"quantize": "int8-dynamic"}),
    "4_bits": (
        nn.Linear(32, 4),
        (torch.ones(2, 32),),
        {"quantize": "int4-dynamic", "group_size": 32},
    ),
    "dynamic": (nn.Linear(4, 2), (X,), {"dynamic_shapes": (BATCH,)}),
}


def npy_files() -> dict[str, bytes]:
    arrays = {
        "float32": np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        "scalar": np.array(1.5),
        "bool": np.array([True, False]),
        "empty": np.zeros((0, 3), np.float16),
    }
    files = {}
    for name, array in arrays.items():
        stream = io.BytesIO()
        np.save(stream, array)
        files[name] = stream.getvalue()
    stream = io.BytesIO()
    np.lib.format.write_array(stream, arrays["float32"], version=(2, 0))
    return files | {"version_2": stream.getvalue()}


def write(kind: str, name: str, data: bytes) -> None:
    path = FOLDER / kind / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"{path.relative_to(FOLDER)}: {len(data)} bytes")


def payload(program: bytes) -> bytes:
    """The first delegate's."""
    parsed = read(program)
    plan = (parsed.program.execution_plan or [])[0]
    place = (plan.delegates or [])[0].processed
    if place.location == 1:
        return bytes(parsed.segments[place.index])
    return bytes((parsed.program.backend_delegate_data or [])[place.index].data)


def main() -> None:
    for prefix, backend, nets in (("portable", "none", PORTABLE), ("xnnpack", "xnnpack", XNNPACK)):
        for name, (module, inputs, options) in nets.items():
            torch.manual_seed(0)
            program = edgewise.compile(
                module.eval(), inputs, backend=backend, verbose=False, **options
            )
            write("pte", f"{prefix}_{name}.pte", program.buffer)
            if backend == "xnnpack":
                write("xnnpack", f"{name}.bin", payload(program.buffer))
    torch.manual_seed(0)
    exported = torch.export.export(nn.Linear(4, 3).eval(), (X,))
    config = edgewise.ExecutorchBackendConfig(external_constants=True)
    manager = edgewise.to_edge_transform_and_lower(exported).to_executorch(config)
    write("pte", "portable_external.pte", manager.buffer)
    with tempfile.TemporaryDirectory() as folder:
        manager.write_tensor_data_to_file(folder)
        for path in Path(folder).iterdir():
            write("ptd", path.name, path.read_bytes())
    for name, data in npy_files().items():
        write("npy", f"{name}.npy", data)


if __name__ == "__main__":
    main()
