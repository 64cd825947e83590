# The partitioner's options, by the names of ExecuTorch's own classes.
import torch
from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS, AddmmConfig
from executorch.backends.xnnpack.partition.config.generic_node_configs import ReLUConfig
from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.utils.configs import get_xnnpack_edge_compile_config
from executorch.devtools.backend_debug import get_delegation_info
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Sigmoid()).eval()
sample_inputs = (torch.randn(2, 8),)
delegates = {}


def lower(name, partitioner):
    edge = to_edge(
        torch.export.export(model, sample_inputs),
        compile_config=get_xnnpack_edge_compile_config(),
    ).to_backend(partitioner)
    assert isinstance(edge, EdgeProgramManager)
    info = get_delegation_info(edge.exported_program().graph_module)
    print(info.get_summary())
    delegates[name] = (info.num_delegated_subgraphs, info.num_non_delegated_nodes)
    return edge.to_executorch(
        ExecutorchBackendConfig(
            memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False),
            extract_delegate_segments=True,
        )
    )


et_program = lower("all", XnnpackPartitioner(configs=ALL_PARTITIONER_CONFIGS))
lower("configs", XnnpackPartitioner(configs=[AddmmConfig, ReLUConfig], verbose=True))
lower("precision", XnnpackPartitioner(config_precisions=ConfigPrecisionType.STATIC_QUANT))
lower("per_op_mode", XnnpackPartitioner(per_op_mode=True))
assert delegates == {
    "all": (1, 0), "configs": (1, 1), "precision": (0, 3), "per_op_mode": (3, 0)
}, delegates
