"""The frameworks of a comparison: how each lowers a model and how each runs the file.

Nothing heavy is imported before it is needed, so that one framework works without the other
installed, and our runtime is measured without torch in its process.
"""

import importlib.metadata
import logging
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Protocol

from _common import ROOT
from _environments import PACKAGES, python_of, version_of

SEED = 0


class Session(Protocol):
    """A loaded model with its inputs: `threads` is what the library says it uses."""

    threads: int

    def run(self) -> Any: ...

    def outputs(self) -> list[Any]: ...


def exported_program(model: str) -> Any:
    """A freshly exported program of one of `examples/models`."""
    import torch

    spec = _spec(model)
    return torch.export.export(spec.build(SEED), spec.example_inputs(SEED))


def _spec(model: str) -> Any:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from examples.models import MODELS

    if model not in MODELS:
        raise SystemExit(f"[models] {model} is not known; try one of {', '.join(MODELS)}")
    return MODELS[model]


def lower_ours(program: Any) -> bytes:
    """From an ExportedProgram to the bytes of a .pte, by edgewise."""
    from edgewise import to_edge_transform_and_lower
    from edgewise.backends.xnnpack import XnnpackPartitioner

    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    return bytes(lowered.to_executorch().buffer)


def lower_peer(program: Any) -> bytes:
    """From an ExportedProgram to the bytes of a .pte, by ExecuTorch."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    return bytes(lowered.to_executorch().buffer)


def quantize_ours(model: str, batches: int) -> bytes:
    """From a module and calibration data to the bytes of a .pte in 8 bits, by edgewise."""
    import edgewise

    spec = _spec(model)
    program = edgewise.compile(
        spec.build(SEED),
        spec.example_inputs(SEED),
        quantize="int8",
        calibration=[spec.example_inputs(seed) for seed in range(batches)],
        verbose=False,
    )
    return bytes(program.buffer)


def quantize_peer(model: str, batches: int) -> bytes:
    """The same with ExecuTorch, as its documentation does it."""
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    spec = _spec(model)
    inputs = spec.example_inputs(SEED)
    config = get_symmetric_quantization_config(is_per_channel=True)
    with torch.no_grad():
        module = torch.export.export(spec.build(SEED), inputs).module()
        prepared = prepare_pt2e(module, XNNPACKQuantizer().set_global(config))
        for seed in range(batches):
            prepared(*spec.example_inputs(seed))
        return lower_peer(torch.export.export(convert_pt2e(prepared), inputs))


def import_lowering(framework: str) -> Callable[[Any], bytes]:
    """The lowering function of a framework, its imports already done."""
    logging.disable(logging.WARNING)
    if framework == "ours":
        import edgewise.backends.xnnpack.lowering.partitioner
        import edgewise.lowering  # noqa: F401

        return lower_ours
    import executorch.backends.xnnpack.partition.xnnpack_partitioner  # noqa: F401

    return lower_peer


def lowering_for(framework: str, backend: str) -> Callable[[Any], bytes]:
    """The same for a backend of ExecuTorch's: its partitioner, in either's lowering."""
    from edgewise.registry import partitioner_for

    logging.disable(logging.WARNING)
    if framework == "ours":
        from edgewise import to_edge_transform_and_lower as lower
    else:
        from executorch.exir import to_edge_transform_and_lower as lower  # type: ignore[assignment]
    partitioner_for(backend)  # imports what it needs

    def lowered(program: Any) -> bytes:
        partitioner: Any = partitioner_for(backend)
        chosen = [partitioner if framework == "ours" else partitioner.wrapped]
        with redirect_stdout(StringIO()):
            return bytes(lower(program, partitioner=chosen).to_executorch().buffer)

    return lowered


def prepare(framework: str, model: str, cache: Path) -> None:
    """Write what `framework` runs, the inputs and the eager outputs to `cache`, in this process."""
    import numpy as np
    import torch

    logging.disable(logging.WARNING)
    spec = _spec(model)
    inputs = spec.example_inputs(SEED)
    if framework == "eager":
        with torch.no_grad():
            outputs = spec.build(SEED)(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        np.savez(cache / f"{model}-inputs.npz", *(x.numpy() for x in inputs))
        np.savez(cache / f"{model}-eager.npz", *(y.numpy() for y in outputs))
        return
    target = model_file(framework, model, cache)
    if framework == "openvino":
        save_openvino(openvino_model(spec.build(SEED), inputs), target)
        return
    partial = target.with_suffix(".partial")
    if framework == "onnx":
        # The exporter that traces TorchScript: it needs onnx, the newer one onnxscript too.
        torch.onnx.export(spec.build(SEED), inputs, str(partial), dynamo=False, opset_version=20)
    else:
        partial.write_bytes(import_lowering(framework)(exported_program(model)))
    partial.rename(target)


def openvino_model(model: Any, inputs: tuple[Any, ...]) -> Any:
    """Converted from PyTorch, its shapes fixed."""
    import openvino
    import torch

    torch.backends.mha.set_fastpath_enabled(False)  # a fused operator that is not converted
    with torch.no_grad():
        made = openvino.convert_model(model, example_input=inputs)
    made.reshape({made.inputs[i].any_name: list(x.shape) for i, x in enumerate(inputs)})
    return made


def save_openvino(model: Any, target: Path) -> None:
    """The graph, and its weights beside it, in float32 where they are floats."""
    import openvino

    openvino.save_model(model, str(target), compress_to_fp16=False)


def model_file(framework: str, model: str, cache: Path) -> Path:
    """Where `framework` keeps `model`; the version of the library is part of the name."""
    framework = "ours" if framework == "xnnpack" else framework
    if framework in PACKAGES:
        return cache / f"{model}-{framework}-{version_of(framework)}.xml"
    package = {"ours": "edgewise", "peer": "executorch", "onnx": "torch"}[framework]
    version = importlib.metadata.version(package)
    suffix = "onnx" if framework == "onnx" else "pte"
    return cache / f"{model}-{framework}-{version}.{suffix}"


def file_size(file: Path) -> int:
    """Bytes; of an OpenVINO model with its weights beside it."""
    weights = file.with_suffix(".bin")
    return file.stat().st_size + (weights.stat().st_size if weights.exists() else 0)


def ensure(frameworks: list[str], model: str, cache: Path, refresh: bool) -> None:
    """Prepare, each in a process of its own, what `cache` does not hold yet."""
    cache.mkdir(parents=True, exist_ok=True)
    frameworks = list(
        dict.fromkeys("ours" if framework == "xnnpack" else framework for framework in frameworks)
    )
    wanted = [
        framework for framework in frameworks if not model_file(framework, model, cache).exists()
    ]
    if refresh and "ours" in frameworks and "ours" not in wanted:
        wanted.append("ours")
    if not (cache / f"{model}-eager.npz").exists():
        wanted.append("eager")
    for framework in wanted:
        run_preparation(framework, model, cache, [__file__, framework, model, str(cache)])


def run_preparation(framework: str, model: str, cache: Path, command: list[str]) -> None:
    """The script and its arguments, by the framework's Python; what it prints, if it fails."""
    print(f"preparing {model} ({framework}) ...", file=sys.stderr, flush=True)
    done = subprocess.run(
        [python_of(framework, cache), "-W", "ignore", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(f"[prepare] {model} could not be prepared for {framework}; see above")


def load_arrays(file: Path) -> list[Any]:
    """The arrays of a file written by `prepare`, in order."""
    import numpy as np

    with np.load(file) as arrays:
        return [arrays[name] for name in arrays.files]


class OursSession:
    """edgewise.runtime, the number of threads given on load."""

    own_kernels = True

    def __init__(self, file: Path, inputs: list[Any], threads: int) -> None:
        from edgewise.runtime import Runtime

        program = Runtime.get().load_program(
            str(file), threads=threads, own_kernels=self.own_kernels
        )
        self._method = program.load_method("forward")
        self._inputs = inputs
        self.threads = threads

    def run(self) -> Any:
        """One inference."""
        return self._method.execute(self._inputs)

    def outputs(self) -> list[Any]:
        """The outputs as numpy arrays."""
        return list(self.run())


class XnnpackSession(OursSession):
    """The same file without fused kernels: XNNPACK's alone."""

    own_kernels = False


class PeerSession:
    """executorch.runtime, its process-wide thread pool set to the number of threads."""

    def __init__(self, file: Path, inputs: list[Any], threads: int) -> None:
        import torch
        from executorch.extension.pybindings import portable_lib
        from executorch.runtime import Runtime

        portable_lib._unsafe_reset_threadpool(threads)
        method = Runtime.get().load_program(str(file)).load_method("forward")
        assert method is not None
        self._method = method
        self._inputs = [torch.from_numpy(x) for x in inputs]
        self.threads = int(portable_lib._threadpool_get_thread_count())

    def run(self) -> Any:
        """One inference."""
        return self._method.execute(self._inputs)

    def outputs(self) -> list[Any]:
        """The outputs as numpy arrays."""
        return [y.numpy() for y in self.run()]


class OnnxSession:
    """ONNX Runtime on the CPU, intra-op threads set, everything else at its default."""

    def __init__(self, file: Path, inputs: list[Any], threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        providers = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(str(file), options, providers=providers)
        names = [x.name for x in self._session.get_inputs()]
        self._inputs = dict(zip(names, inputs, strict=True))
        self.threads = threads

    def run(self) -> Any:
        """One inference."""
        return self._session.run(None, self._inputs)

    def outputs(self) -> list[Any]:
        """The outputs as numpy arrays."""
        return list(self.run())


class OpenVinoSession:
    """OpenVINO on the CPU in float32, threads set, everything else at its default."""

    def __init__(self, file: Path, inputs: list[Any], threads: int) -> None:
        import openvino

        options = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            # By default it computes in bfloat16 where the CPU can.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        self._compiled = openvino.Core().compile_model(str(file), "CPU", options)
        self._request = self._compiled.create_infer_request()
        self._inputs = inputs
        self.threads = int(self._compiled.get_property("INFERENCE_NUM_THREADS"))

    def run(self) -> Any:
        """One inference."""
        return self._request.infer(self._inputs, share_inputs=True, share_outputs=True)

    def outputs(self) -> list[Any]:
        """The outputs as numpy arrays."""
        return list(self.run().values())


SESSIONS: dict[str, Callable[[Path, list[Any], int], Session]] = {
    "ours": OursSession,
    "peer": PeerSession,
    "onnx": OnnxSession,
    "xnnpack": XnnpackSession,
    "openvino": OpenVinoSession,
}
OTHERS = ("peer", "onnx", "openvino")
"""Whom ours is compared with."""


if __name__ == "__main__":
    prepare(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
