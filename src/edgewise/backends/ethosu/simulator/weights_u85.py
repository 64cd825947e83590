"""Weights and scales of Ethos-U85."""

from __future__ import annotations

import numpy as np

from edgewise.backends.ethosu.simulator import fwd, mlw
from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.memory import Array, Memory
from edgewise.backends.ethosu.simulator.registers import Registers
from edgewise.backends.ethosu.simulator.stream import Target
from edgewise.backends.ethosu.simulator.weight_order_u85 import OrderU85, positions_u85
from edgewise.backends.ethosu.simulator.weights import Scales, Stream, number, streams

_MICROBLOCKS = {"U1X1": 1, "U1X2": 2, "U1X4": 4, "U2X2": 4, "U2X4": 8, "U4X4": 16}
_SCALE_BYTES = 10


class WeightReaderU85:
    """Decoded weights are kept: the same bytes in the same order are decoded once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._decoded: dict[tuple[bytes, OrderU85, tuple[int, int, int, int], int], Array] = {}

    def streams(self, registers: Registers) -> list[Stream]:
        fast = registers.enum("WEIGHT_FORMAT", "weight_format") == "FWD"
        return streams(registers, "WEIGHT", 1 if fast else self._target.cores)

    def read(
        self,
        memory: Memory,
        registers: Registers,
        shape: tuple[int, int, int, int],
        depthwise: bool,
        input_bits: int,
        stride: tuple[int, int],
        dilation: tuple[int, int],
    ) -> Array:
        """[out, height, width, in] as int16; a depthwise kernel has one input channel."""
        fast = registers.enum("WEIGHT_FORMAT", "weight_format") == "FWD"
        part_kernel = registers.enum("KERNEL_STRIDE", "weight_order") == "PART_KERNEL_FIRST"
        block = _MICROBLOCKS[registers.enum("ACC_FORMAT", "microblock")]
        order = OrderU85(
            depthwise=depthwise,
            part_kernel=part_kernel and not depthwise,
            sparse=registers.enum("WEIGHT_FORMAT", "weight_sparsity") == "SPARSE_2_4",
            input_bits=input_bits,
            block_depth=registers.get("OFM_BLK_DEPTH_M1", "depth_m1") + 1,
            group_depth=max(4, self._target.macs // 8 // block),
            macs=self._target.macs,
            stride=stride,
            dilation=dilation,
            decoders=self._target.cores,
            interleaved=fast,
        )
        result = np.zeros(int(np.prod(shape)) + 1, np.int16)
        for decoder, stream in enumerate(self.streams(registers)):
            data = memory.bytes_at(stream.region, stream.start, stream.size)
            index, values = self._decode(data, order, shape, decoder)
            result[index] = values
        weights = result[:-1].reshape(shape)
        if order.sparse:
            _check_sparse(weights)
        return weights

    def _decode(
        self, data: bytes, order: OrderU85, shape: tuple[int, int, int, int], decoder: int
    ) -> tuple[Array, Array]:
        index = positions_u85(order, shape, decoder)
        key = (data, order, shape, decoder)
        if key not in self._decoded:
            values = (fwd if order.interleaved else mlw).decode(data)
            if len(values) < len(index):
                raise NpuError(
                    f"the weight stream has {len(index)} weights; "
                    f"got {len(values)} in {len(data)} bytes"
                )
            self._decoded[key] = values[: len(index)]
        return index, self._decoded[key]


def _check_sparse(weights: Array) -> None:
    """Of four weights in a row along the input channels the NPU stores two."""
    padded = np.pad(weights, ((0, 0),) * 3 + ((0, -weights.shape[3] % 4),))
    most = int(np.count_nonzero(padded.reshape(-1, 4), 1).max(initial=0))
    if most > 2:
        raise NpuError(f"of four sparse weights two are zero at least; got {most} that are not")


def read_scales_u85(memory: Memory, registers: Registers, channels: int) -> Scales:
    (stream,) = streams(registers, "SCALE", 1)
    if stream.size < channels * _SCALE_BYTES:
        raise NpuError(
            f"a scale has {_SCALE_BYTES} bytes; got {stream.size} for {channels} channels"
        )
    data = memory.bytes_at(stream.region, stream.start, channels * _SCALE_BYTES)
    records = np.frombuffer(data, np.uint8).reshape(channels, _SCALE_BYTES).astype(np.int64)
    wide = registers.enum("ACC_FORMAT", "acc_format") == "I48"
    bias_bytes = 6 if wide else 4
    bias = number(records[:, :bias_bytes])
    sign = 8 * bias_bytes - 1
    bias = bias - ((bias >> sign) << sign + 1)
    return Scales(bias, number(records[:, bias_bytes:8]), records[:, 8] & 0x3F)
