"""Every import path that is served: module, names, and where the objects are.

A name stands for the object of that name in the row's home; `name=other` for the home's `other`.
The home of a row without names is imported with the path, for what its import does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from edgewise.compat.xnnpack_configs import CONFIG_MODULES, CONFIGS

ROOT = "executorch"


class Row(NamedTuple):
    """Names that one module of ExecuTorch has and one module of ours."""

    path: str
    home: str
    names: str


_XNNPACK = "edgewise.backends.xnnpack"
_ETHOSU = "edgewise.backends.ethosu"
_NEUTRON = "edgewise.backends.neutron"
_QUANTIZE = "edgewise.quantize.config"
_SPEC = "edgewise.partition.spec"
_EXIR = "edgewise.compat.exir"
_RUNTIME = "edgewise.compat.runtime"
_LEGACY = "edgewise.compat.portable_lib"
_DEVTOOLS = "edgewise.compat.devtools"
_ARM = "edgewise.compat.arm"
_ELSEWHERE = "edgewise.compat.elsewhere"
_ANALYSIS = "edgewise.compat.analysis"
_BUNDLED = "edgewise.compat.bundled"
_GRAPHS = "edgewise.compat.graphs"
_LLAMA = "edgewise.compat.llama"
_PASSES = "edgewise.compat.passes"
_SCRIPTS = "edgewise.compat.scripts"

_CONFIGS = "edgewise.compat.xnnpack_configs"
_CONFIG_PATH = "executorch.backends.xnnpack.partition.config"
_PARTITIONERS = (
    "XnnpackDynamicallyQuantizedPartitioner XnnpackFloatingPointPartitioner XnnpackPartitioner"
)
_EDGE_CONFIGS = "EdgeCompileConfig ExecutorchBackendConfig"
_LOWERING = "EdgeProgramManager to_edge to_edge_transform_and_lower"
_MANAGERS = "ExecutorchProgram=ExecutorchProgramManager ExecutorchProgramManager"
_ARM_QUANTIZER = "EthosUQuantizer get_symmetric_a16w8_quantization_config"
_PORTABLE_LIB = (
    "ExecuTorchMethod ExecuTorchModule ExecuTorchProgram _get_operator_names "
    "_get_registered_backend_names _is_available _load_for_executorch "
    "_load_for_executorch_from_buffer _load_program _load_program_from_buffer "
    "_unsafe_reset_threadpool"
)
_METADATA = "MethodMeta TensorInfo Verification"
_BUNDLES = (
    "BundledModule _load_bundled_program_from_buffer _load_for_executorch_from_bundled_program"
)

_DATACLASSES = (
    "AllocationDetails BackendDelegate BackendDelegateDataReference BackendDelegateInlineData Bool",
    "BoolList Buffer Chain CompileSpec ContainerMetadata DataSegment DelegateCall Double",
    "DoubleList EValue ExecutionPlan ExtraTensorInfo Frame FrameList FreeCall Instruction Int",
    "IntList JumpFalseCall KernelCall MoveCall NamedData NonConstBufferDevice Null Operator",
    "OptionalTensorList Program String SubsegmentOffsets Tensor TensorList",
)
_BACKENDS = "edgewise.compat.backends"
_RECIPES = "edgewise.compat.recipes"
_SESSION = "edgewise.compat.session"
_RECIPE_NAMES = "AOQuantizationConfig ExportRecipe LoweringRecipe QuantizationRecipe"
_XNNPACK_RECIPES = "edgewise.compat.xnnpack_recipes"
_EXPORT_UTIL = "export_to_edge export_to_exec_prog save_pte_program"

ROWS = (
    # lowering
    Row("executorch.exir", _EXIR, f"{_EDGE_CONFIGS} {_LOWERING}"),
    Row("executorch.exir", _EXIR, _MANAGERS),
    Row("executorch.exir", "edgewise.compat.quantized_operators", ""),
    Row("executorch.exir", "torch.export", "ExportedProgram ExportGraphSignature"),
    Row("executorch.exir", "typing", "Value=Any"),
    Row("executorch.exir.tracer", "typing", "Value=Any"),
    Row("executorch.exir.program", _EXIR, _LOWERING),
    Row("executorch.exir.program", _EXIR, _MANAGERS),
    Row("executorch.exir.program._program", _EXIR, _LOWERING),
    Row("executorch.exir.program._program", _EXIR, _MANAGERS),
    Row("executorch.exir.capture", _EXIR, _EDGE_CONFIGS),
    Row("executorch.exir.capture._config", _EXIR, _EDGE_CONFIGS),
    Row("executorch.exir.passes", _EXIR, "MemoryPlanningPass"),
    Row("executorch.exir.passes.memory_planning_pass", _EXIR, "MemoryPlanningPass"),
    Row(
        "executorch.exir.passes.external_constants_pass",
        "edgewise.compat.external_constants",
        "delegate_external_constants_pass_unlifted",
    ),
    Row("executorch.exir.passes.sym_shape_eval_pass", _EXIR, "ConstraintBasedSymShapeEvalPass"),
    Row("executorch.exir.pass_base", "torch.fx.passes.infra.pass_base", "PassResult"),
    Row("executorch.exir.pass_base", _PASSES, "ExportPass NodeMetadata ProxyValue"),
    Row("executorch.exir.pass_base", _PASSES, "ExportedProgramPassBase"),
    Row("executorch.exir.pass_base", _PASSES, "ExportedProgramPassResult"),
    Row("executorch.exir.pass_manager", _PASSES, "ExportedProgramPassManager"),
    Row("executorch.exir.pass_manager", _PASSES, "PassManager PassType"),
    Row("executorch.exir.passes.init_mutable_pass", _PASSES, "InitializedMutableBufferPass"),
    Row("executorch.exir.passes.quant_fusion_pass", _PASSES, "QuantFusionPass"),
    Row(
        "executorch.backends.transforms.duplicate_dynamic_quant_chain",
        _PASSES,
        "DuplicateDynamicQuantChainPass",
    ),
    Row("executorch.backends.xnnpack._passes.convert_to_linear", _PASSES, "ConvertToLinearPass"),
    # edge operators are ATen's own here
    Row("executorch.exir.dialects._ops", _EXIR, "ops"),
    Row("executorch.exir.dialects.edge._ops", "torch._ops", "EdgeOpOverload=OpOverload"),
    # graphs as text
    Row("executorch.exir.backend.utils", _GRAPHS, "format_delegated_graph get_delegates"),
    Row("executorch.exir.backend.utils", _GRAPHS, "get_delegated_payload"),
    Row("executorch.exir.backend.utils", _GRAPHS, "get_non_lowered_nodes print_delegated_graph"),
    Row("executorch.exir.backend.utils", _GRAPHS, "tag_constant_data tag_mutated_buffer"),
    Row("executorch.exir.backend.utils", _BACKENDS, "DelegateMappingBuilder"),
    Row("executorch.exir.graph_module", _GRAPHS, "_get_submodule get_control_flow_submodules"),
    Row("executorch.exir.lowered_backend_module", _GRAPHS, "get_lowered_backend_modules"),
    Row("executorch.exir.lowered_backend_module", _GRAPHS, "get_lowered_submodules"),
    Row("executorch.exir.print_program", _GRAPHS, "inspect_node pretty_print print_program"),
    # recipes
    Row("executorch.export", _RECIPES, f"{_RECIPE_NAMES} StageType"),
    Row("executorch.export", _SESSION, "ExportSession export"),
    Row("executorch.export", _RECIPES, "BackendRecipeProvider RecipeType recipe_registry"),
    Row("executorch.export.export", _SESSION, "ExportSession export"),
    Row("executorch.export.recipe", _RECIPES, f"{_RECIPE_NAMES} Mode RecipeType"),
    Row("executorch.export.recipe_provider", _RECIPES, "BackendRecipeProvider"),
    Row("executorch.export.recipe_registry", _RECIPES, "RecipeRegistry recipe_registry"),
    Row("executorch.export.stages", _SESSION, "PipelineArtifact Stage"),
    Row("executorch.export.types", _RECIPES, "StageType"),
    Row("executorch.backends.xnnpack.recipes", _XNNPACK_RECIPES, "XNNPACKRecipeProvider"),
    Row("executorch.backends.xnnpack.recipes", _XNNPACK_RECIPES, "XNNPackRecipeType"),
    Row(
        "executorch.backends.xnnpack.recipes.xnnpack_recipe_types",
        _XNNPACK_RECIPES,
        "XNNPackRecipeType",
    ),
    Row(
        "executorch.backends.xnnpack.recipes.xnnpack_recipe_provider",
        _XNNPACK_RECIPES,
        "XNNPACKRecipeProvider",
    ),
    # the file's dataclasses
    *(Row("executorch.exir.schema", "edgewise.format.program", names) for names in _DATACLASSES),
    Row("executorch.exir.schema", "edgewise.compat.schema", "DataLocation TensorDataLocation"),
    Row("executorch.exir.schema", "edgewise.compat.schema", "TensorShapeDynamism"),
    # partitioners and backends of one's own
    Row(
        "executorch.exir.backend.backend_api",
        "edgewise.compat.backend_api",
        "MethodProgramsPartitionerSpec to_backend",
    ),
    Row("executorch.exir.backend.backend_api", "edgewise.partition", "LoweredBackendModule"),
    Row(
        "executorch.exir.backend.canonical_partitioners.pattern_op_partitioner",
        "edgewise.compat.partitioners",
        "generate_partitions_from_list_of_nodes generate_pattern_op_partitions",
    ),
    Row("executorch.exir.backend.compile_spec_schema", _SPEC, "CompileSpec"),
    Row(
        "executorch.exir.passes.quantize_io_pass",
        "edgewise.compat.quantized_io",
        "QuantizeInputs QuantizeOutputs extract_io_quant_params get_config_method_name",
    ),
    # what scripts take of helpers
    Row("executorch.extension.export_util", _SCRIPTS, _EXPORT_UTIL),
    Row("executorch.extension.export_util.utils", _SCRIPTS, _EXPORT_UTIL),
    Row("executorch.extension.pytree", "torch.utils._pytree", "TreeSpec tree_flatten tree_map"),
    Row("executorch.extension.pytree", "torch.utils._pytree", "tree_unflatten"),
    Row(
        "executorch.extension.llm.runner",
        "edgewise.compat.llm_runner",
        "GenerationConfig Image MultimodalInput MultimodalRunner Stats TextLLMRunner "
        "make_audio_input make_image_input make_text_input make_token_input",
    ),
    Row("executorch.extension.llm.custom_ops", _LLAMA, ""),
    Row(
        "executorch.extension.llm.custom_ops.custom_ops",
        _LLAMA,
        "custom_sdpa",
    ),
    Row("executorch.extension.llm.export.export_passes", _PASSES, "RemoveRedundantTransposes"),
    Row(
        "executorch.examples.models.llama.source_transformation.custom_kv_cache",
        _LLAMA,
        "CustomKVCache CustomRingKVCache",
    ),
    Row("executorch.backends.nxp.quantizer.utils", _SCRIPTS, "calibrate_and_quantize"),
    Row(
        "executorch.backends.nxp.edge_passes.remove_io_quant_ops_pass",
        "edgewise.compat.quantized_io",
        "RemoveIOQuantOpsPass",
    ),
    Row("executorch.exir.backend.partitioner", _SPEC, "DelegationSpec PartitionResult"),
    Row("executorch.exir.backend.partitioner", _BACKENDS, "Partitioner"),
    Row("executorch.exir.backend.backend_details", _SPEC, "BackendDetails"),
    Row("executorch.exir.backend.backend_details", _BACKENDS, "PreprocessResult"),
    Row(
        "executorch.exir._serialize._named_data_store",
        _BACKENDS,
        "DataEntry NamedDataStore NamedDataStoreOutput",
    ),
    Row("executorch.exir.backend.backend_details", _SPEC, "CompileSpec"),
    Row("executorch.exir.backend.backend_details", "torch.export", "ExportedProgram"),
    Row("executorch.exir.lowered_backend_module", "edgewise.partition", "LoweredBackendModule"),
    Row("executorch.exir.delegate", "edgewise.partition", "executorch_call_delegate=call_delegate"),
    # XNNPACK
    Row("executorch.backends.xnnpack", _XNNPACK, "XnnpackBackend"),
    Row(
        "executorch.backends.xnnpack",
        _XNNPACK,
        "XnnpackDynamicallyQuantizedPartitioner XnnpackPartitioner",
    ),
    Row(
        "executorch.backends.xnnpack",
        "edgewise.compat.xnnpack",
        "get_xnnpack_edge_compile_config get_xnnpack_executorch_backend_config",
    ),
    Row("executorch.backends.xnnpack.xnnpack_preprocess", _XNNPACK, "XnnpackBackend"),
    Row("executorch.backends.xnnpack.partition.xnnpack_partitioner", _XNNPACK, _PARTITIONERS),
    Row(
        "executorch.backends.xnnpack.partition.xnnpack_partitioner",
        "edgewise.compat.xnnpack",
        "XnnpackQuantizedPartitioner",
    ),
    Row(_CONFIG_PATH, _CONFIGS, " ".join(["ALL_PARTITIONER_CONFIGS", *CONFIGS])),
    *(
        Row(f"{_CONFIG_PATH}.{module}", _CONFIGS, " ".join(names))
        for module, names in CONFIG_MODULES.items()
    ),
    Row(
        "executorch.backends.xnnpack.partition.config.xnnpack_config",
        _XNNPACK,
        "ConfigPrecisionType",
    ),
    Row(
        "executorch.backends.xnnpack.quantizer.xnnpack_quantizer",
        _XNNPACK,
        "XNNPACKQuantizer get_symmetric_quantization_config",
    ),
    Row(
        "executorch.backends.xnnpack.quantizer.xnnpack_quantizer_utils",
        _QUANTIZE,
        "QuantizationConfig",
    ),
    Row(
        "executorch.backends.xnnpack.utils.configs",
        "edgewise.compat.xnnpack",
        "get_transform_passes get_xnnpack_edge_compile_config "
        "get_xnnpack_executorch_backend_config",
    ),
    # Arm Ethos-U
    Row("executorch.backends.arm.ethosu", _ETHOSU, "EthosUBackend EthosUCompileSpec"),
    Row("executorch.backends.arm.ethosu", _ETHOSU, "EthosUPartitioner"),
    Row("executorch.backends.arm.ethosu.backend", _ETHOSU, "EthosUBackend"),
    Row("executorch.backends.arm.ethosu.compile_spec", _ETHOSU, "EthosUCompileSpec"),
    Row("executorch.backends.arm.ethosu.partitioner", _ETHOSU, "EthosUPartitioner"),
    Row("executorch.backends.arm.quantizer", _ETHOSU, _ARM_QUANTIZER),
    Row("executorch.backends.arm.quantizer", _QUANTIZE, "QuantizationConfig"),
    Row("executorch.backends.arm.quantizer", _QUANTIZE, "get_symmetric_quantization_config"),
    Row("executorch.backends.arm.quantizer.arm_quantizer", _ETHOSU, _ARM_QUANTIZER),
    Row(
        "executorch.backends.arm.quantizer.arm_quantizer",
        _QUANTIZE,
        "QuantizationConfig get_symmetric_quantization_config",
    ),
    Row("executorch.backends.arm.quantizer.quantization_config", _QUANTIZE, "QuantizationConfig"),
    # what Arm's and NXP's scripts for compiling a model import
    Row("executorch.backends.arm.common.arm_compile_spec", _ARM, "ArmCompileSpec"),
    Row("executorch.backends.arm.util._factory", _ARM, "create_partitioner create_quantizer"),
    Row(
        "executorch.backends.cortex_m.passes.replace_quant_nodes_pass",
        _ARM,
        "ReplaceQuantNodesPass",
    ),
    Row("executorch.backends.arm.tosa", _ELSEWHERE, "TosaSpecification"),
    Row("executorch.backends.arm.tosa.compile_spec", _ELSEWHERE, "TosaCompileSpec"),
    Row("executorch.backends.arm.tosa.specification", _ELSEWHERE, "TosaSpecification"),
    Row("executorch.backends.arm.vgf", _ELSEWHERE, "VgfCompileSpec VgfPartitioner"),
    Row("executorch.backends.arm.quantizer", _ELSEWHERE, "TOSAQuantizer VgfQuantizer"),
    Row(
        "executorch.backends.cortex_m.edge_compile_config",
        _ELSEWHERE,
        "cortex_m_edge_compile_config",
    ),
    Row(
        "executorch.backends.cortex_m.passes.cortex_m_pass_manager",
        _ELSEWHERE,
        "CortexMPassManager",
    ),
    Row("executorch.backends.cortex_m.quantizer.quantizer", _ELSEWHERE, "CortexMQuantizer"),
    Row("executorch.backends.cortex_m.target_config", _ELSEWHERE, "CortexMTargetConfig"),
    Row(
        "executorch.devtools.visualization.visualization_utils",
        _ELSEWHERE,
        "visualize_with_clusters",
    ),
    Row(
        "executorch.backends.nxp.edge_passes.neutron_edge_pass_manager",
        "edgewise.compat.neutron",
        "NeutronEdgePassManager",
    ),
    Row(
        "executorch.backends.nxp.edge_passes.remove_additional_quantize_dequantize_nodes_pass",
        "edgewise.compat.neutron",
        "RemoveAdditionalQDQClustersPass",
    ),
    Row(
        "executorch.backends.nxp.nxp_backend",
        "edgewise.compat.neutron",
        "core_aten_ops_exception_list",
    ),
    # NXP Neutron
    Row("executorch.backends.nxp.neutron_partitioner", _NEUTRON, "NeutronPartitioner"),
    Row("executorch.backends.nxp.nxp_backend", _NEUTRON, "NeutronBackend"),
    Row(
        "executorch.backends.nxp.nxp_backend",
        _NEUTRON,
        "NeutronCompileSpecBuilder generate_neutron_compile_spec",
    ),
    Row("executorch.backends.nxp.quantizer.neutron_quantizer", _NEUTRON, "NeutronQuantizer"),
    Row(
        "executorch.backends.nxp.backend.custom_delegation_options",
        _NEUTRON,
        "CustomDelegationOptions",
    ),
    Row(
        "executorch.backends.nxp.quantizer.neutron_quantizer",
        "edgewise.compat.neutron",
        "NeutronTargetSpec",
    ),
    Row(
        "executorch.backends.nxp.backend.neutron_target_spec",
        "edgewise.compat.neutron",
        "NeutronTargetSpec",
    ),
    # the runtime
    Row("executorch.runtime", _RUNTIME, "BackendRegistry Method MethodMeta OperatorRegistry"),
    Row("executorch.runtime", _RUNTIME, "Program Runtime Verification"),
    # `_portable_lib` is the native module up to 1.4, `_C` the one since.
    *(
        row
        for module in ("portable_lib", "_portable_lib", "_C")
        for row in (
            Row(f"executorch.extension.pybindings.{module}", _LEGACY, _PORTABLE_LIB),
            Row(f"executorch.extension.pybindings.{module}", _RUNTIME, _METADATA),
            Row(f"executorch.extension.pybindings.{module}", _BUNDLED, _BUNDLES),
        )
    ),
    Row("executorch.kernels.quantized", "", ""),
    # looking into programs
    Row("executorch.devtools", _DEVTOOLS, "Inspector generate_etrecord parse_etrecord"),
    Row("executorch.devtools.etdump.serialize", _DEVTOOLS, "deserialize_from_etdump_flatcc"),
    Row("executorch.devtools", _BUNDLED, "BundledProgram"),
    Row("executorch.devtools.bundled_program.core", _BUNDLED, "BundledProgram"),
    Row(
        "executorch.devtools.bundled_program.config",
        _BUNDLED,
        "ConfigValue DataContainer MethodInputType MethodOutputType MethodTestCase MethodTestSuite",
    ),
    Row(
        "executorch.devtools.bundled_program.schema",
        "edgewise.format.bundled_program",
        "Bool BundledMethodTestCase BundledMethodTestSuite BundledProgram Double Int Tensor Value",
    ),
    Row(
        "executorch.devtools.bundled_program.serialize",
        _BUNDLED,
        "deserialize_from_flatbuffer_to_bundled_program "
        "serialize_from_bundled_program_to_flatbuffer",
    ),
    Row("executorch.devtools.etrecord", _DEVTOOLS, "generate_etrecord parse_etrecord"),
    Row("executorch.devtools.inspector", _ANALYSIS, "compare_results"),
    Row("executorch.util.activation_memory_profiler", _ANALYSIS, "generate_memory_trace"),
    Row("executorch.version", "edgewise.compat.release", "__version__"),
    Row(
        "executorch.devtools.inspector", _DEVTOOLS, "Event EventBlock Inspector PerfData TimeScale"
    ),
    Row(
        "executorch.devtools.backend_debug",
        "edgewise.compat.delegation",
        "DelegationBreakdown get_delegation_info print_delegation_info",
    ),
)

_PT2E = "torchao.quantization.pt2e"
REMOVED_ROWS = (
    Row("torch.ao.quantization.quantize_pt2e", f"{_PT2E}.quantize_pt2e", "convert_pt2e"),
    Row("torch.ao.quantization.quantize_pt2e", f"{_PT2E}.quantize_pt2e", "prepare_pt2e"),
    Row("torch.ao.quantization.quantize_pt2e", f"{_PT2E}.quantize_pt2e", "prepare_qat_pt2e"),
    Row("torch.ao.quantization.quantizer.xnnpack_quantizer", _XNNPACK, "XNNPACKQuantizer"),
    Row(
        "torch.ao.quantization.quantizer.xnnpack_quantizer",
        _QUANTIZE,
        "get_symmetric_quantization_config",
    ),
)
"""Modules that torch has removed and scripts of that time import; served where torch has none."""


def _read(rows: tuple[Row, ...]) -> dict[str, dict[str, str]]:
    served: dict[str, dict[str, str]] = {}
    for row in rows:
        names = served.setdefault(row.path, {})
        for item in row.names.split():
            name, _, other = item.partition("=")
            assert name not in names, f"{row.path}.{name} is served twice"
            names[name] = f"{row.home}:{other or name}"
    return served


REMOVED: Mapping[str, Mapping[str, str]] = _read(REMOVED_ROWS)
SERVED: Mapping[str, Mapping[str, str]] = {**_read(ROWS), **REMOVED}
"""By path and name: "module:attribute" of the object behind it."""
AT_IMPORT: Mapping[str, str] = {row.path: row.home for row in ROWS if row.home and not row.names}
"""By path what is imported with it, or with the first of its names if it has some."""


@cache
def paths() -> frozenset[str]:
    """Modules that can be imported: those of the table, and what they are in."""
    found: set[str] = set()
    for path in SERVED:
        parts = path.split(".")
        found.update(".".join(parts[:n]) for n in range(1, len(parts) + 1))
    return frozenset(found)
