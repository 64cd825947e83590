"""Quantized models, ours and the peer's (and ONNX Runtime's, OpenVINO's) side by side.

Static int8 with a scale for each output channel: each framework quantizes with its own quantizer,
on the same calibration data, and lowers with its own flow. `mlp_8da4w`: four gated blocks of 2048
-> 8192 -> 2048 on one row, 4-bit weights in groups of 32 and activations quantized at run time, by
torchao's `quantize_` for both. ONNX Runtime (--onnx, needs the package onnx) runs a QDQ file of its
own quantizer; OpenVINO (--openvino, in an environment of its own) what NNCF's post-training
quantization makes.

Per framework: the time of one inference (as in latency.py), the seconds from the quantized exported
program to the bytes of the file, its size, its delegates and other operators, and the largest
error against the quantized program in eager PyTorch, relative to its largest output (for ONNX
Runtime and OpenVINO: against the float model). "dB": signal to noise against that program; it must
not be below "quantized dB", which is that program's own against the float model: roundings that
differ add up over the layers, but to no more than quantization itself. --only ours|peer, --models,
--refresh: as in latency.py.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import _pte
from _common import add_cache_options, add_common_options, add_timing_options, report, report_wrong
from _environments import python_of
from _frameworks import (
    SEED,
    SESSIONS,
    _spec,
    file_size,
    import_lowering,
    model_file,
    openvino_model,
    run_preparation,
    save_openvino,
)
from _worker import Asked, Worker, serve
from latency import alternate, compared, decibels, handler

IMAGES = ("mobilenet_v2", "mobilenet_v3_small", "resnet50", "vit_b_16")
DECODE = "mlp_8da4w"
CALIBRATION = 4  # batches
FLOAT_FRAMEWORKS = ("onnx", "openvino")
"""Frameworks that quantize float models by themselves."""


def decode_model(is_quantized: bool = True) -> Any:
    """Four gated MLP blocks with residual connections, quantized by `quantize_`."""
    import torch
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(2048, 8192, bias=False)
            self.up = torch.nn.Linear(2048, 8192, bias=False)
            self.down = torch.nn.Linear(8192, 2048, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gate = torch.nn.functional.silu(self.gate(x))
            result: torch.Tensor = x + self.down(gate * self.up(x))
            return result

    torch.manual_seed(SEED)
    model = torch.nn.Sequential(*(Block() for _ in range(4))).eval()
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32)
    )
    if is_quantized:
        quantize_(model, config)
    return model


def inputs_of(model: str, seed: int = SEED) -> tuple[Any, ...]:
    """Example inputs, or with other seeds calibration data."""
    if model != DECODE:
        return tuple(_spec(model).example_inputs(seed))
    import torch

    return (torch.randn(1, 2048, generator=torch.Generator().manual_seed(seed)),)


def quantized_program(framework: str, model: str) -> Any:
    """The exported program that `framework` lowers."""
    import torch

    inputs = inputs_of(model)
    if model == DECODE:
        return torch.export.export(decode_model(), inputs)
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    if framework == "ours":
        from edgewise.backends.xnnpack import XNNPACKQuantizer
        from edgewise.quantize import get_symmetric_quantization_config
    else:
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
    config = get_symmetric_quantization_config(is_per_channel=True)
    graph = torch.export.export(_spec(model).build(SEED), inputs).module()
    prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(config))
    for seed in range(CALIBRATION):
        prepared(*inputs_of(model, seed))
    return torch.export.export(convert_pt2e(prepared), inputs)


def prepare(framework: str, model: str, cache: Path) -> None:
    """Write the file of `framework`, inputs and reference outputs to `cache`, in this process."""
    import numpy as np
    import torch

    target = file_of(framework, model, cache)
    inputs = inputs_of(model)
    facts: dict[str, Any] = {}
    with torch.no_grad():
        if framework in FLOAT_FRAMEWORKS:
            outputs = _spec(model).build(SEED)(*inputs)
            prepare_float = _prepare_onnx if framework == "onnx" else _prepare_openvino
            prepare_float(model, inputs, target)
        else:
            lower = import_lowering(framework)
            program = quantized_program(framework, model)
            outputs = program.module()(*inputs)
            plain = decode_model(False) if model == DECODE else _spec(model).build(SEED)
            floats = plain(*inputs)
            start = time.perf_counter()
            data = lower(program)
            contents = _pte.read(data)
            facts = {
                "s": time.perf_counter() - start,
                "delegates+ops": f"{contents.delegate_count}+{contents.operator_count}",
                "quantized dB": decibels(_arrays(outputs), _arrays(floats)),
            }
            target.write_bytes(data)
    np.savez(target.with_suffix(".inputs.npz"), *(x.numpy() for x in inputs))
    np.savez(target.with_suffix(".expected.npz"), *_arrays(outputs))
    # Last: it says that all is there.
    target.with_suffix(".json").write_text(json.dumps(facts))


def _arrays(outputs: Any) -> list[Any]:
    return [y.numpy() for y in (outputs if isinstance(outputs, tuple) else (outputs,))]


def _prepare_onnx(model: str, inputs: tuple[Any, ...], target: Path) -> None:
    import importlib.util

    import torch

    if importlib.util.find_spec("onnx") is None:
        raise SystemExit("[onnx] onnxruntime.quantization needs the package onnx; try pip install")
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain = target.with_suffix(".float.onnx")
    torch.backends.mha.set_fastpath_enabled(False)  # a fused operator that ONNX does not have
    torch.onnx.export(_spec(model).build(SEED), inputs, str(plain), dynamo=False, opset_version=20)
    quant_pre_process(str(plain), str(plain), skip_symbolic_shape=True)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            import onnxruntime

            session = onnxruntime.InferenceSession(str(plain), providers=["CPUExecutionProvider"])
            names = [x.name for x in session.get_inputs()]
            self.batches = iter(
                dict(zip(names, (x.numpy() for x in inputs_of(model, seed)), strict=True))
                for seed in range(CALIBRATION)
            )

        def get_next(self) -> dict[str, Any] | None:
            return next(self.batches, None)

    quantize_static(
        str(plain),
        str(target),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    plain.unlink()


def _prepare_openvino(model: str, inputs: tuple[Any, ...], target: Path) -> None:
    import nncf

    plain = openvino_model(_spec(model).build(SEED), inputs)
    batches = [[x.numpy() for x in inputs_of(model, seed)] for seed in range(CALIBRATION)]
    kind = nncf.ModelType.TRANSFORMER if model.startswith("vit") else None
    save_openvino(nncf.quantize(plain, nncf.Dataset(batches), model_type=kind), target)


def file_of(framework: str, model: str, cache: Path) -> Path:
    return model_file(framework, f"{model}-quantized", cache)


def ensure(framework: str, model: str, cache: Path, refresh: bool) -> None:
    """Prepare, in a process of its own, what `cache` does not hold yet."""
    cache.mkdir(parents=True, exist_ok=True)
    facts = file_of(framework, model, cache).with_suffix(".json")
    is_whole = facts.exists() and (
        framework in FLOAT_FRAMEWORKS or "quantized dB" in json.loads(facts.read_text())
    )
    if is_whole and not refresh:
        return
    options = ["--prepare", framework, "--models", model, "--cache", str(cache)]
    run_preparation(framework, model, cache, [__file__, *options])


def measure(model: str, frameworks: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """A table row for one model, and the block medians."""
    frameworks = [
        framework
        for framework in frameworks
        if framework not in FLOAT_FRAMEWORKS or model != DECODE
    ]
    for framework in frameworks:
        ensure(framework, model, options.cache, options.refresh and framework == "ours")
    files = {framework: file_of(framework, model, options.cache) for framework in frameworks}
    workers: dict[str, Asked] = {
        framework: Worker(Path(__file__), framework, python_of(framework, options.cache))
        for framework in frameworks
    }
    try:
        loaded = {
            framework: worker.ask(
                load=str(files[framework]),
                inputs=str(files[framework].with_suffix(".inputs.npz")),
                expected=str(files[framework].with_suffix(".expected.npz")),
                threads=options.threads,
            )
            for framework, worker in workers.items()
        }
        blocks, least = alternate(workers, options)
    finally:
        for worker in workers.values():
            worker.close()
    row: dict[str, Any] = {"model": model, **compared(blocks, least)}
    facts = {
        framework: json.loads(files[framework].with_suffix(".json").read_text())
        for framework in frameworks
    }
    for key in ("s", "delegates+ops", "quantized dB"):
        row |= {
            f"{framework} {key}": facts[framework][key]
            for framework in frameworks
            if key in facts[framework]
        }
    row |= {f"{framework} MB": file_size(files[framework]) / 1e6 for framework in frameworks}
    row |= {f"{framework} error": loaded[framework]["error_"] for framework in frameworks}
    row |= {
        f"{framework} dB": loaded[framework]["dB_"]
        for framework in frameworks
        if framework not in FLOAT_FRAMEWORKS
    }
    return {"row": row, "blocks": blocks}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, (*IMAGES, DECODE))
    add_cache_options(parser)
    add_timing_options(parser)
    parser.add_argument("--onnx", action="store_true", help="ONNX Runtime, too")
    parser.add_argument("--openvino", action="store_true", help="OpenVINO, too")
    parser.add_argument("--worker", choices=tuple(SESSIONS), help=argparse.SUPPRESS)
    parser.add_argument("--prepare", choices=tuple(SESSIONS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(handler(options.worker))
        return 0
    if options.prepare:
        for model in options.models:
            prepare(options.prepare, model, options.cache)
        return 0
    frameworks = [options.only] if options.only else ["ours", "peer"]
    frameworks += [framework for framework in FLOAT_FRAMEWORKS if getattr(options, framework)]
    results = {}
    for model in options.models:
        print(f"{model} ...", file=sys.stderr, flush=True)
        results[model] = measure(model, frameworks, options)
    report(
        "Quantized models",
        [result["row"] for result in results.values()],
        [
            f"medians over {options.pairs} alternating blocks of about {options.block:g} ms, "
            f"{options.settle:g} ms apart; a process for each framework, {options.threads} threads",
            "s: from the quantized exported program to the bytes of the file, first in its process",
            "error: of the largest output, against the quantized program in eager PyTorch; "
            "ONNX Runtime's and OpenVINO's against the float model; dB: signal to noise, of the "
            "file against the quantized program, and of that against the float model",
        ],
        options.json,
        {"block_medians_ms": {model: result["blocks"] for model, result in results.items()}},
    )
    lost = {
        f"{model} ({framework})": result["row"][f"{framework} quantized dB"]
        - result["row"][f"{framework} dB"]
        for model, result in results.items()
        for framework in ("ours", "peer")
        if f"{framework} dB" in result["row"]
    }
    return report_wrong(lost, 0.0)


if __name__ == "__main__":
    raise SystemExit(main())
