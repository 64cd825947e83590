"""The weight codec of Ethos-U55 and U65: Golomb-Rice codes of palette indices and zero runs.

A stream is slices of up to 32768 weights. A slice has a header, then chunks: the quotients of
up to twelve codes in unary, then the remainders of the chunk before. Where a chunk ends is
known only from its quotients, so a loop finds the chunks; numpy takes them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.memory import Array

_END, _NO_RUNS = 7, 6  # of the zero runs' divisor
_UNCOMPRESSED = 7  # of the weights' divisor
_CODES = 12
_ONES = bytes(bin(i).count("1") for i in range(1 << _CODES))
_ZEROS = bytes(_CODES - ones for ones in _ONES)
_MASKS = [(1 << ones) - 1 for ones in range(_CODES + 1)]


@dataclass
class _Palette:
    offset: int
    bits: int
    values: Array


class _Bits:
    def __init__(self, data: bytes) -> None:
        self.size = 8 * len(data)
        self.data = data + bytes(16)
        self.position = 0

    def take(self, count: int) -> int:
        value = self.window() & (1 << count) - 1
        self.position += count
        if self.position > self.size:
            raise NpuError(f"a weight stream ends with its slices; got an end at {self.size} bits")
        return value

    def window(self) -> int:
        start = self.position >> 3
        return int.from_bytes(self.data[start : start + 8], "little") >> (self.position & 7)

    @property
    def left(self) -> int:
        return self.size - self.position


def decode(data: bytes) -> Array:
    """The weights of a stream, int16, in the stream's order. Raises NpuError."""
    bits = _Bits(data)
    palette: _Palette | None = None
    parts: list[Array] = []
    while bits.left >= 3:
        z_div = bits.take(3)
        if z_div == _END:
            bits.position += -bits.position % 8
            continue
        if z_div in (4, 5):
            raise NpuError(f"a slice of weights has zero runs of 0 to 3 bits; got {z_div}")
        count = bits.take(15) + 1
        w_div = bits.take(3)
        truncated = bits.take(1)
        new_palette = bits.take(1)
        if new_palette:
            palette = _read_palette(bits)
        if palette is None or w_div == 6:
            raise NpuError(f"a weight stream's first slice has a palette; got divisor {w_div}")
        parts.append(_read_slice(bits, palette, count, w_div, truncated, z_div, new_palette))
    return np.concatenate(parts) if parts else np.zeros(0, np.int16)


def _read_palette(bits: _Bits) -> _Palette:
    offset = bits.take(5)
    size = bits.take(5)
    size += size > 0
    width = bits.take(3) + 2
    return _Palette(offset, width, np.array([bits.take(width) for _ in range(size)], np.int64))


def _read_slice(
    bits: _Bits,
    palette: _Palette,
    count: int,
    w_div: int,
    truncated: int,
    z_div: int,
    new_palette: int,
) -> Array:
    size = len(palette.values)
    plain = w_div == _UNCOMPRESSED
    if plain:
        w_div = (size - 1).bit_length() if size else palette.bits
    runs = z_div != _NO_RUNS
    run_count = count + new_palette if runs else 0
    chunks = _find_chunks(bits, count, run_count, w_div, z_div, plain, bool(truncated))

    quotients = _weight_quotients(chunks, count, plain, bool(truncated))
    codes = (quotients << w_div) + _remainders(bits, chunks.w_rests, w_div)
    if codes.size and int(codes.max()) >= 512 + size:
        raise NpuError(f"a weight has 9 bits; got code {int(codes.max())}")
    table = np.concatenate([palette.values, np.arange(512) + palette.offset])
    values = table[codes]
    weights = np.where(values & 1, -(values >> 1), values >> 1).astype(np.int16)
    if not runs:
        return weights
    zeros = (_run_quotients(chunks, run_count) << z_div) + _remainders(bits, chunks.z_rests, z_div)
    if int(zeros.sum()) > 1 << 28:
        raise NpuError(f"a slice has at most 2**28 zeros; got {int(zeros.sum())}")
    before = np.cumsum(zeros)[:count] if new_palette else np.cumsum(zeros) - zeros
    result = np.zeros(count + int(zeros.sum()), np.int16)
    result[before + np.arange(count)] = weights
    return result


@dataclass
class _Chunks:
    unary0: Sequence[int] | Array
    unary1: Sequence[int] | Array
    runs: list[int]
    run_bits: int
    w_rests: Sequence[tuple[int, int]] | Array
    """First bit and number of remainders."""
    z_rests: list[tuple[int, int]]


def _find_chunks(
    bits: _Bits, count: int, run_count: int, w_div: int, z_div: int, plain: bool, truncated: bool
) -> _Chunks:
    if not run_count and not plain:
        return _find_unary_chunks(bits, count, w_div, truncated)
    run_bits = 12 if z_div < 3 else 8
    w_rests: list[tuple[int, int]] = []
    unary: tuple[list[int], list[int]] = ([], [])
    chunks = _Chunks(*unary, [], run_bits, w_rests, [])
    most = 8 if plain and w_div > 5 else _CODES
    data, position = bits.data, bits.position
    run_mask = (1 << run_bits) - 1
    w_done = z_done = w_before = z_before = 0
    while True:
        balance = w_done - z_done if run_count else 0
        w_on = balance < 8 and w_done < count
        z_on = run_count > z_done and balance >= 0
        start = position >> 3
        window = int.from_bytes(data[start : start + 8], "little") >> (position & 7)
        unary0 = 0
        if w_on and not plain:
            unary0 = window & 0xFFF
            window >>= 12
            position += 12
        z_new = 0
        if z_on:
            runs = window & run_mask
            window >>= run_bits
            position += run_bits
            chunks.runs.append(runs)
            z_new = min(run_bits - _ONES[runs], run_count - z_done)
            z_done += z_new
        w_new = 0
        if w_on:
            ones = _ONES[unary0]
            unary1 = window & (1 << ones) - 1
            position += ones
            unary[0].append(unary0)
            unary[1].append(unary1)
            w_new = min(most if truncated or plain else most - _ONES[unary1], count - w_done)
            w_done += w_new
        if w_before:
            w_rests.append((position, w_before))
            position += w_before * w_div
        if z_before:
            chunks.z_rests.append((position, z_before))
            position += z_before * z_div
        w_before, z_before = w_new, z_new
        if position > bits.size:
            raise NpuError(f"a weight stream ends with its slices; got an end at {bits.size} bits")
        if not (w_on or z_on):
            break
    bits.position = position
    return chunks


def _find_unary_chunks(bits: _Bits, count: int, w_div: int, truncated: bool) -> _Chunks:
    """Without zero runs, which most slices are: the loop finds where chunks begin, no more."""
    data, position = bits.data, bits.position
    codes = bytes([_CODES]) * len(_ZEROS) if truncated else _ZEROS
    starts: list[int] = []
    news: list[int] = []
    left, before = count, 0
    while left > 0:
        at = position >> 3
        window = int.from_bytes(data[at : at + 4], "little") >> (position & 7)
        starts.append(position)
        ones = _ONES[window & 0xFFF]
        new = codes[window >> _CODES & _MASKS[ones]]
        position += _CODES + ones + before * w_div
        if position > bits.size:
            break
        news.append(new)
        before = new
        left -= new
    bits.position = position + (before + left) * w_div  # left is negative: codes of none
    if left > 0 or bits.position > bits.size:
        raise NpuError(f"a weight stream ends with its slices; got an end at {bits.size} bits")
    first, counts = np.array(starts, np.int64), np.array(news, np.int64)
    counts[-1] += left
    windows = np.frombuffer(data, np.uint8)[(first >> 3)[:, None] + np.arange(4)].astype(np.int64)
    windows = (windows << np.arange(0, 32, 8)).sum(1) >> (first & 7)
    unary0 = windows & 0xFFF
    doubled = np.frombuffer(_ONES, np.uint8)[unary0].astype(np.int64)
    unary1 = windows >> _CODES & (1 << doubled) - 1
    # The remainders of a chunk lie behind the quotients of the next.
    rests = np.append(first[1:] + _CODES + doubled[1:], position)
    return _Chunks(unary0, unary1, [], 0, np.stack([rests, counts], 1), [])


def _weight_quotients(chunks: _Chunks, count: int, plain: bool, truncated: bool) -> Array:
    if plain:
        return np.zeros(count, np.int64)
    bit = np.arange(_CODES)
    first = np.asarray(chunks.unary0, np.int64)[:, None] >> bit & 1
    second = np.asarray(chunks.unary1, np.int64)[:, None] >> (np.cumsum(first, 1) - first) & 1
    steps = (first + (first & second)).ravel()
    ends = np.arange(steps.size) if truncated else np.flatnonzero(steps < 2)
    return np.diff(np.cumsum(steps)[ends[:count]], prepend=0)


def _run_quotients(chunks: _Chunks, run_count: int) -> Array:
    ones = np.array(chunks.runs, np.int64)[:, None] >> np.arange(chunks.run_bits) & 1
    ends = np.flatnonzero(ones.ravel() == 0)[:run_count]
    return np.diff(ends, prepend=-1) - 1


def _remainders(bits: _Bits, rests: Sequence[tuple[int, int]] | Array, width: int) -> Array:
    starts, counts = np.asarray(rests, np.int64).reshape(-1, 2).T
    total = int(counts.sum())
    if width == 0:
        return np.zeros(total, np.int64)
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    position = np.repeat(starts, counts) + within * width
    data = np.frombuffer(bits.data, np.uint8)
    index = position >> 3
    window = data[index].astype(np.int64) | data[index + 1].astype(np.int64) << 8
    window |= data[index + 2].astype(np.int64) << 16
    return np.asarray(window >> (position & 7) & (1 << width) - 1)
