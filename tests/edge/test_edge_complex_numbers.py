"""Complex numbers inside of a model: real and imaginary parts, in the file and on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import edgewise
from edgewise.errors import InvalidGraphError
from support import Fn, assert_close, eager64, lower, operators, run_ours, run_peer

pytestmark = pytest.mark.matrix  # the private parts of torch that it rests on change

X = torch.randn(2, 6, 8)
Y = torch.randn(2, 6, 8)
SIGNAL = torch.randn(1, 4000)
HANN = torch.hann_window(400)
WEIGHT = torch.randn(6, 5, dtype=torch.complex64)
MEL = torch.rand(80, 201)
ANGLES = torch.outer(torch.arange(6.0), 1 / 100 ** (torch.arange(4) / 4))


def z(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, y)


def parts(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value)


def pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def rotary(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    return parts(pairs(x) * table[: x.shape[1]]).flatten(-2)


def stft(x: torch.Tensor, size: int = 400, hop: int = 160, **options: Any) -> torch.Tensor:
    return torch.stft(x, size, hop, return_complex=True, **options)


NUMBERS: dict[str, Callable[..., Any]] = {
    "complex": lambda x, y: parts(z(x, y)),
    "real": lambda x, y: z(x, y).real,
    "imag": lambda x, y: z(x, y).imag + z(x, y).real,
    "polar": lambda x, y: parts(torch.polar(x, y)),
    "view_as_complex": lambda x, y: parts(pairs(x)[..., 1:]),
    "add": lambda x, y: parts(z(x, y) + pairs(x).repeat(1, 1, 2)),
    "add alpha": lambda x, y: parts(torch.add(z(x, y), z(y, x), alpha=2)),
    "add a real": lambda x, y: parts(z(x, y) + y[:1] + 2),
    "add to a real": lambda x, y: parts(y - z(x, y[:1])),
    "subtract": lambda x, y: parts(1 - (z(x, y) - z(y, y))),
    "a complex number": lambda x, y: parts((x + 1j) * (2 - 3j) + z(x, y) - 1j),
    "multiply": lambda x, y: parts(z(x, y) * z(y, x)),
    "multiply a real": lambda x, y: parts(z(x, y) * x * 0.5),
    "divide": lambda x, y: parts(z(x, y) / (z(y, x) + 4)),
    "divide by a real": lambda x, y: parts(z(x, y) / (2 + x * x)),
    "divide a real": lambda x, y: parts(x / (z(x, y) + 4j)),
    "reciprocal": lambda x, y: parts(1 / (z(x, y) + 4)),
    "neg": lambda x, y: parts(-z(x, y)),
    "conj": lambda x, y: parts((z(x, y).conj() * z(x, y)).resolve_conj()),
    "abs": lambda x, y: z(x, y).abs(),
    "angle": lambda x, y: z(x, y).angle(),
    "square": lambda x, y: parts(z(x, y) ** 2),
    "cube": lambda x, y: parts(z(x, y).pow(3)),
    "root": lambda x, y: parts((z(x, y) + 4) ** 0.5),
    "a power of a number": lambda x, y: parts(2 ** z(x, y)),
    "a complex power": lambda x, y: parts(z(x, y + 5) ** z(y, x)),
    "exp": lambda x, y: parts(z(x, y).exp()),
    "log": lambda x, y: parts((z(x, y) + 5).log()),
    "sqrt": lambda x, y: parts((z(x, y) + 5).sqrt()),
    "sin": lambda x, y: parts(z(x, y).sin()),
    "tanh": lambda x, y: parts(z(x, y).tanh()),
    "sum": lambda x, y: parts(z(x, y).sum(-1)),
    "mean": lambda x, y: parts(z(x, y).mean((0, 1), keepdim=True)),
    "cumsum": lambda x, y: parts(z(x, y).cumsum(1)),
    "matmul": lambda x, y: parts(z(x, y)[0] @ z(y, x)[1].mT),
    "bmm": lambda x, y: parts(z(x, y) @ z(y, x).mT),
    "einsum": lambda x, y: parts(torch.einsum("bij,bkj->bik", z(x, y), z(y, x).conj())),
    "views": lambda x, y: parts(z(x, y).transpose(1, 2).reshape(2, -1)[:, 3:20].unsqueeze(1)),
    "cat": lambda x, y: parts(torch.cat([z(x, y), z(y, x)[:, :2]], 1)),
    "stack": lambda x, y: parts(torch.stack([z(x, y), pairs(torch.cat([x, y], -1))])),
    "chunk": lambda x, y: parts(z(x, y).chunk(2, -1)[1]),
    "unbind": lambda x, y: parts(z(x, y).unbind(1)[2]),
    "flip": lambda x, y: parts(z(x, y).flip(1)),
    "roll": lambda x, y: parts(z(x, y).roll(2, 1)),
    "where": lambda x, y: parts(torch.where(x > 0, z(x, y), z(y, x))),
    "pad": lambda x, y: parts(torch.nn.functional.pad(z(x, y), (1, 2))),
    "index": lambda x, y: parts(z(x, y)[:, torch.tensor([3, 0, 3])]),
    "expand": lambda x, y: parts(z(x, y)[:, :1].expand(2, 3, 8)),
    "to complex": lambda x, y: parts(x.to(torch.complex64) * z(x, y)),
    "ones": lambda x, y: parts(torch.ones(8, dtype=torch.complex64) * z(x, y)),
    "zeros_like": lambda x, y: parts(torch.zeros_like(z(x, y)) + z(x, y)),
    "written": lambda x, y: parts(z(x, y).index_fill(1, torch.tensor([2]), 0)),
    "a tensor of one": lambda x, y: parts(torch.tensor(1 + 2j) * z(x, y)),
    "equal": lambda x, y: z(x, y) == z(x, x),
    "float64": lambda x, y: parts(z(x.double(), y.double()).exp()),
}  # fmt: skip

SPECTRA: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "fft": (lambda x: parts(torch.fft.fft(x)), X),
    "fft of complex": (lambda x: parts(torch.fft.fft(pairs(x), norm="ortho")), X),
    "ifft": (lambda x: parts(torch.fft.ifft(pairs(x), dim=1)), X),
    "ifft of real": (lambda x: parts(torch.fft.ifft(x, norm="forward").resolve_conj()), X),
    "rfft": (lambda x: parts(torch.fft.rfft(x)), X),
    "rfft of an odd length": (lambda x: parts(torch.fft.rfft(x, n=7)), X),
    "rfft, padded": (lambda x: parts(torch.fft.rfft(x, n=12, norm="forward")), X),
    "irfft": (lambda x: torch.fft.irfft(pairs(x)), X),
    "irfft of an odd length": (lambda x: torch.fft.irfft(pairs(x), n=7, norm="ortho"), X),
    "hfft": (lambda x: torch.fft.hfft(pairs(x)), X),
    "ihfft": (lambda x: parts(torch.fft.ihfft(x).resolve_conj()), X),
    "fft2": (lambda x: parts(torch.fft.fft2(x)), X),
    "rfft2": (lambda x: parts(torch.fft.rfft2(x, norm="ortho")), X),
    "irfft2": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * WEIGHT), X),
    "fftn": (lambda x: torch.fft.fftn(x, dim=(1, 2)).real, X),
    "ifftn": (lambda x: parts(torch.fft.ifftn(pairs(x))), X),
    "fftshift": (lambda x: torch.fft.fftshift(torch.fft.fft2(x)).abs(), X),
    "convolution": (
        lambda x: torch.fft.irfft(torch.fft.rfft(x, n=16) * torch.fft.rfft(Y[0], n=16), n=16), X,
    ),
    "several factors": (lambda x: parts(torch.fft.fft(x)), torch.randn(1, 1200)),
    "a power of two": (lambda x: parts(torch.fft.rfft(x)), torch.randn(1, 4096)),
    "back from many": (lambda x: torch.fft.irfft(torch.fft.rfft(x)), torch.randn(1, 2048)),
    "back to an odd number": (
        lambda x: torch.fft.irfft(torch.fft.rfft(x), n=1155), torch.randn(1, 1155),
    ),
    "a large prime": (lambda x: parts(torch.fft.rfft(x)), torch.randn(1, 1021)),
    "stft": (lambda x: stft(x, window=HANN).abs() ** 2, SIGNAL),
    "stft, not centred": (lambda x: parts(stft(x, center=False, normalized=True)), SIGNAL),
    "stft of both sides": (lambda x: stft(x, 64, 16, onesided=False).abs(), SIGNAL),
    "istft": (
        lambda x: torch.istft(stft(x, window=HANN), 400, 160, window=HANN), SIGNAL,
    ),
    "mel": (
        lambda x: (MEL.to(x) @ stft(x, window=HANN)[..., :-1].abs() ** 2).clamp(min=1e-10).log10(),
        SIGNAL,
    ),
}  # fmt: skip


def compare(function: Callable[..., Any], *inputs: torch.Tensor) -> bytes:
    module = Fn(function)
    pte = lower(module, inputs).buffer
    expected = eager64(module, inputs)
    size = max((float(e.abs().max()) for e in expected if e.is_floating_point()), default=0.0)
    assert_close(run_ours(pte, inputs)[0], expected, rel=1e-5, floor=2e-6 * size)
    return pte


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    compare(NUMBERS[name], X, Y)


@pytest.mark.parametrize("name", SPECTRA)
def test_spectra(name: str) -> None:
    function, x = SPECTRA[name]
    compare(function, x)


CONSTANTS: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "a buffer": (rotary, torch.polar(torch.ones_like(ANGLES), ANGLES)),
    "its conjugate": (rotary, torch.polar(torch.ones_like(ANGLES), ANGLES).conj()),
    "made of angles": (
        lambda x, table: rotary(x, torch.polar(torch.ones_like(table), table)), ANGLES,
    ),
    "of what is computed": (
        lambda x, table: torch.fft.irfft2(torch.fft.rfft2(x) * torch.view_as_complex(table).mT[:6]),
        torch.randn(5, 8, 2),
    ),
    "rows of a table": (
        lambda x, table: parts(pairs(x) * torch.nn.functional.embedding(torch.arange(6), table)),
        torch.polar(torch.ones_like(ANGLES), ANGLES),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants(name: str) -> None:
    function, table = CONSTANTS[name]
    module = Fn(function, table=table)
    pte = lower(module, (X,)).buffer
    assert_close(run_ours(pte, (X,))[0], [module(X)], rel=1e-5, floor=1e-5)


def test_a_parameter() -> None:
    """As global filters have it (GFNet, AFNO)."""

    class Filter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.complex64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho") * self.weight, norm="ortho")

    module = Filter().eval()
    pte = lower(module, (X,)).buffer
    assert operators(pte) == ["delegate"]
    assert_close(run_ours(pte, (X,))[0], [module(X)], rel=1e-5, floor=1e-5)


def test_an_open_size() -> None:
    table = torch.polar(torch.ones_like(ANGLES), ANGLES)
    length = torch.export.Dim("length", min=1, max=6)
    module = Fn(rotary, table=table)
    program = lower(module, (X,), dynamic_shapes={"inputs": ({1: length},)})
    assert operators(program.buffer).count("delegate") == 1
    for size in (6, 1, 3):
        x = torch.randn(2, size, 8)
        assert_close(run_ours(program.buffer, (x,))[0], [module(x)], rel=1e-5, floor=1e-6)


OPEN_SPECTRA = {
    "of two dimensions": lambda x: torch.fft.fftn(x, dim=(1, 2)).real,
    "by the root of the length": lambda x: torch.fft.fft(x, dim=1, norm="ortho").imag,
    "by the length": lambda x: torch.fft.rfft(x, dim=1, norm="forward").real,
    "there and back": lambda x: torch.fft.ifft(torch.fft.fft(x, dim=1), dim=1).real,
}


@pytest.mark.parametrize("name", OPEN_SPECTRA)
def test_spectra_of_an_open_length(name: str) -> None:
    length = torch.export.Dim("length", min=4, max=1000)
    module = Fn(OPEN_SPECTRA[name])
    example = torch.randn(2, 12, 8)
    program = lower(module, (example,), dynamic_shapes={"inputs": ({1: length},)})
    for size in (12, 7, 600):
        x = torch.randn(2, size, 8)
        want = module(x.double()).float()
        floor = 3e-6 * float(want.abs().max())
        assert_close(run_ours(program.buffer, (x,))[0], [want], rel=0, floor=floor)


@pytest.mark.peer
@pytest.mark.parametrize("name", ["stft", "istft", "irfft2", "back from many"])
def test_spectra_on_executorch(name: str) -> None:
    function, x = SPECTRA[name]
    module = Fn(function)
    pte = lower(module, (x,)).buffer
    assert_close(run_peer(pte, (x,))[0], [module(x)], rel=1e-4, floor=1e-4)


def test_int8() -> None:
    """What is quantized lies around the complex numbers."""
    linear = torch.nn.Linear(8, 8)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear
            self.register_buffer("table", torch.polar(torch.ones_like(ANGLES), ANGLES))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(rotary(self.linear(x), self.table))

    module, batches = Model().eval(), [(torch.randn(2, 6, 8),) for _ in range(8)]
    program = edgewise.compile(module, (X,), quantize="int8", calibration=batches, verbose=False)
    got = run_ours(program.buffer, (X,))[0][0]
    error = (torch.as_tensor(got) - module(X)).norm() / module(X).norm()
    assert error < 0.1


@pytest.mark.parametrize(
    ("function", "inputs", "message"),
    [
        (parts, (z(X, Y),), r"inputs and state must be real numbers; got inputs_0 of complex64"),
        (torch.fft.rfft, (X,), r"results must be real numbers; got .* of complex64; try"),
        (
            lambda x: torch.fft.rfft(x).abs(), (torch.randn(4099),),
            r"no prime factor above 4096; got 4099; try n=",
        ),
        (
            lambda x: torch.logcumsumexp(z(x, x), 0).abs(), (X,),
            r"must have a form in real numbers; got .* of complex ones",
        ),
        (
            lambda x: torch.cond(x.sum() > 0, torch.square, torch.clone, (z(x, x),)).abs(),
            (X,), r"control flow must take and give real numbers",
        ),
    ],
)  # fmt: skip
def test_what_has_no_form_in_real_numbers(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], message: str
) -> None:
    with pytest.raises(InvalidGraphError, match=message):
        lower(Fn(function), inputs)
