"""`executorch.backends.xnnpack.partition.config`: rows of our operator table by the names of
ExecuTorch's classes, for `XnnpackPartitioner(configs=[...])`."""

from __future__ import annotations

CONFIGS = {
    "AbsConfig": "abs",
    "AddConfig": "add",
    "AddmmConfig": "addmm",
    "AvgPoolingConfig": "avg_pool2d",
    "BMMConfig": "bmm",
    "BatchNormConfig": "batch_norm",
    "CatConfig": "cat",
    "CeilConfig": "ceil",
    "ChooseQParamsAffineConfig": "choose_qparams",
    "ClampConfig": "clamp",
    "CloneConfig": "clone",
    "CloneDimOrderConfig": "clone",
    "ConstantPadConfig": "constant_pad_nd",
    "ConvolutionConfig": "conv2d",
    "CosConfig": "cos",
    "DeQuantizeAffineConfig": "dequantize_dynamic",
    "DeQuantizedPerTensorConfig": "dequantize_per_tensor",
    "DivConfig": "div",
    "EluConfig": "elu",
    "ExpConfig": "exp",
    "FloorConfig": "floor",
    "GeluConfig": "gelu",
    "HardswishConfig": "hardswish",
    "HardtanhConfig": "hardtanh",
    "LeakyReLUConfig": "leaky_relu",
    "LinearConfig": "linear",
    "LogConfig": "log",
    "MMConfig": "mm",
    "MaxDimConfig": "max_dim",
    "MaxPool2dConfig": "max_pool2d",
    "MaximumConfig": "maximum",
    "MeanDimConfig": "mean",
    "MinimumConfig": "minimum",
    "MulConfig": "mul",
    "NegConfig": "neg",
    "PermuteConfig": "permute_copy",
    "PowConfig": "pow",
    "PreluConfig": "prelu",
    "QuantizeAffineConfig": "quantize_dynamic",
    "QuantizedPerTensorConfig": "quantize_per_tensor",
    "ReLUConfig": "relu",
    "ReciprocalSquareRootConfig": "rsqrt",
    "SigmoidConfig": "sigmoid",
    "SinConfig": "sin",
    "SliceCopyConfig": "slice_copy",
    "SoftmaxConfig": "softmax",
    "SquareRootConfig": "sqrt",
    "SubConfig": "sub",
    "TanhConfig": "tanh",
    "ToDimOrderCopyConfig": "_to_dim_order_copy",
    "UnsqueezeCopyConfig": "unsqueeze_copy",
    "UpsampleBilinear2dConfig": "upsample_bilinear2d",
    "ViewCopyConfig": "view_copy",
}

_NODES = ("BatchNormConfig", "MaxDimConfig", "PreluConfig")
_GEMMS = ("AddmmConfig", "ConvolutionConfig", "LinearConfig", "MMConfig")
_AFFINE = ("ChooseQParamsAffineConfig", "DeQuantizeAffineConfig", "QuantizeAffineConfig")
CONFIG_MODULES = {
    "gemm_configs": _GEMMS,
    "generic_node_configs": tuple(set(CONFIGS) - {*_NODES, *_GEMMS, *_AFFINE}),
    "node_configs": _NODES,
    "quant_affine_configs": _AFFINE,
}
"""The submodules that ExecuTorch has them in."""


def __getattr__(name: str) -> str | list[str]:
    if name == "ALL_PARTITIONER_CONFIGS":
        return sorted(set(CONFIGS.values()))
    if name in CONFIGS:
        return CONFIGS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
