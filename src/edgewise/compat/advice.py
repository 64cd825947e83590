"""What to use instead of what is not served."""

from __future__ import annotations

from difflib import get_close_matches

from edgewise.compat.table import SERVED, paths

# By the longest prefix of a path.
ADVICE = (
    (
        "executorch.backends.apple",
        "Core ML and MPS are not backends of edgewise: try ExecuTorch's partitioner with "
        "edgewise.to_edge_transform_and_lower, without edgewise.compat (docs/backends.md)",
    ),
    ("executorch.backends.arm.tosa", "TOSA is compiled for Ethos-U only: try EthosUPartitioner"),
    (
        "executorch.backends.arm.ethosu.VelaExternalBlockPlacements",
        "an Ethos-U's commands and weights stay in the .pte file: leave it out",
    ),
    (
        "executorch.backends.arm.ethosu.compile_spec.VelaExternalBlockPlacements",
        "an Ethos-U's commands and weights stay in the .pte file: leave it out",
    ),
    ("executorch.backends.arm.vgf", "VGF is not a backend of edgewise: try EthosUPartitioner"),
    ("executorch.backends.transforms", "edgewise runs such passes itself while it lowers"),
    (
        "executorch.backends",
        "edgewise has XNNPACK, Ethos-U and Neutron: try one of these partitioners, or ExecuTorch's "
        "with edgewise.to_edge_transform_and_lower, without edgewise.compat (docs/backends.md)",
    ),
    (
        "executorch.devtools.etrecord",
        "try print(program.delegation_report()) or `edgewise inspect`",
    ),
    ("executorch.devtools.ETRecord", "try generate_etrecord, parse_etrecord or program.record()"),
    ("executorch.devtools.inspector", "try edgewise.profile(), or edgewise.inspect.compare"),
    (
        "executorch.devtools.bundled_program",
        "try edgewise.inspect.compare(model, program, batches)",
    ),
    ("executorch.devtools", "try edgewise.inspect, or the command `edgewise`"),
    ("executorch.examples.models.llama", "try edgewise.llm, or `edgewise llm export`"),
    ("executorch.examples", "models to start with are in this project's examples/models"),
    ("executorch.exir.backend", "try edge.to_backend(partitioner)"),
    ("executorch.exir.capture", "try torch.export.export(model, inputs)"),
    ("executorch.exir.emit", "try program.to_executorch()"),
    (
        "executorch.exir.pass_base",
        "a pass is any function of a graph module: try edge.transform([f])",
    ),
    (
        "executorch.exir.passes.external_constants_pass",
        "try to_executorch(ExecutorchBackendConfig(external_constants=True))",
    ),
    ("executorch.exir.passes", "edgewise runs such passes itself while it lowers"),
    ("executorch.exir.serde", "try torch.export.save and torch.export.load"),
    ("executorch.exir._serialize", "try edgewise.format.file.read(bytes)"),
    ("executorch.exir.schema", "try edgewise.format.program"),
    ("executorch.exir.verification", "try edgewise.edge.check(program)"),
    ("executorch.export.target_recipes", "try ExportRecipe.get_recipe(XNNPackRecipeType.FP32)"),
    ("executorch.export", "try edgewise.compile(model, inputs, backend=..., quantize=...)"),
    ("executorch.extension.flat_tensor", "try program.write_tensor_data_to_file(folder)"),
    ("executorch.extension.llm", "try edgewise.llm, or `edgewise llm export`"),
    (
        "executorch.extension.llm.runner.make_raw_audio_input",
        "try make_audio_input with what the processor's feature extractor makes of the samples",
    ),
    ("executorch.extension.training", "edgewise has no training on the device"),
    ("executorch.codegen", "try edgewise.runtime.register_kernel"),
    ("executorch.kernels", "edgewise's kernels are always there: leave the import out"),
)


def advice(path: str) -> str:
    """What to do instead of importing `path`."""
    if (exact := dict(ADVICE).get(path)) is not None:
        return exact
    parent, _, name = path.rpartition(".")
    others = [one for one in paths() if not _is_below(path, one)]
    close = get_close_matches(name, SERVED.get(parent, {}), 1) or [
        one
        for one in get_close_matches(path, others, 1, cutoff=0.9)
        if get_close_matches(name, [one.rpartition(".")[2]])
    ]
    if close:
        return f"try {close[0]}"
    # The same name under another path: ExecuTorch has moved some.
    homes = sorted(home for home, names in SERVED.items() if name in names)
    if homes:
        return f"try from {homes[0]} import {name}"
    found = [(prefix, text) for prefix, text in ADVICE if _is_below(path, prefix)]
    if found:
        return max(found)[1]  # the longest prefix
    return "try edgewise's own names, or ExecuTorch itself for this script"


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.",))
