"""From a float module to an exported program that is quantized."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MethodType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from edgewise.edge.export import export_module
from edgewise.edge.graph import dtype_name
from edgewise.edge.relift import relift
from edgewise.edge.to_edge import without_vmap
from edgewise.edge.upcast import upcast
from edgewise.quantize._torchao import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    PerAxis,
    PerGroup,
    Quantizer,
    convert_pt2e,
    prepare_pt2e,
    quantize_,
)
from edgewise.quantize.calibration import STUDIED, Batch, calibrate, first_batches
from edgewise.quantize.checks import check_weights, watched_activations
from edgewise.quantize.config import QuantizationConfig, get_symmetric_quantization_config
from edgewise.quantize.left import Unquantized, left_by_modules
from edgewise.quantize.methods.group_scales import fit_groups
from edgewise.quantize.methods.grouped import moments_by_weight, round_groups_in_turn
from edgewise.quantize.methods.registry import Method, methods_of
from edgewise.quantize.quantizer import TableQuantizer
from edgewise.quantize.schemes import Scheme, scheme_of
from edgewise.quantize.selection import is_within


def quantize(
    model: torch.nn.Module,
    example_inputs: Sequence[Any],
    scheme: str | Scheme,
    quantizer: Callable[[], TableQuantizer],
    *,
    calibration: Iterable[Any] | None = None,
    keep_float: Sequence[str] = (),
    methods: Sequence[str] | None = None,
    dynamic_shapes: Any = None,
    progress: bool = True,
    example_kwargs: Mapping[str, Any] | None = None,
) -> ExportedProgram:
    """The module, quantized and exported; the module itself is not changed.

    quantizer: makes the backend's quantizer. calibration: batches of inputs (tuples, or a
    tensor for one input), for schemes that need them. keep_float: names of modules (as in
    `named_modules`) that are not quantized. methods: names (`edgewise.quantize.methods`); None for
    those that cost nothing when the program runs. example_kwargs: inputs by name; batches of
    calibration data are then dicts of these, or pairs of a tuple and a dict. ValueError if
    calibration data are missing or do not fit, or a name is not one of the model's, or no number is
    of a type that is quantized.
    """
    program, _ = quantize_and_tell(
        model,
        example_inputs,
        scheme,
        quantizer,
        calibration=calibration,
        keep_float=keep_float,
        methods=methods,
        dynamic_shapes=dynamic_shapes,
        progress=progress,
        example_kwargs=example_kwargs,
    )
    return program


def quantize_and_tell(
    model: torch.nn.Module,
    example_inputs: Sequence[Any],
    scheme: str | Scheme,
    quantizer: Callable[[], TableQuantizer],
    *,
    calibration: Iterable[Any] | None = None,
    keep_float: Sequence[str] = (),
    methods: Sequence[str] | None = None,
    dynamic_shapes: Any = None,
    progress: bool = True,
    example_kwargs: Mapping[str, Any] | None = None,
    exported: ExportedProgram | None = None,
) -> tuple[ExportedProgram, list[Unquantized]]:
    """As `quantize`; and what was asked for that stays in floating point.

    exported: the program whose module the model is, if it is one, with `dynamic_shapes`.
    """
    scheme = scheme_of(scheme)
    _check_names(model, keep_float)
    chosen = configured(quantizer, scheme, keep_float)
    applied = methods_of(methods, scheme, type(chosen))

    def fresh() -> TableQuantizer:
        return configured(quantizer, scheme, keep_float, applied)

    chosen = fresh()
    _check_dtypes(model, (*chosen.dtypes, torch.bfloat16))
    check_weights(model, keep_float)
    if not scheme.uses_pt2e:
        studied: list[Batch] = []
        if applied:
            if calibration is None:
                raise ValueError(
                    f"[quantize] {', '.join(m.name for m in applied)} needs calibration data; got "
                    f"none; try calibration=[...] with inputs such as the model will see"
                )
            any_size = dynamic_shapes is not None
            studied, _ = first_batches(
                calibration, example_inputs, example_kwargs, any_size=any_size
            )
        quantized = with_integer_weights(
            model,
            scheme,
            keep_float,
            methods=applied,
            inputs=example_inputs,
            keywords=example_kwargs,
            studied=studied,
        )
        program = export_module(quantized, example_inputs, dynamic_shapes, example_kwargs)
        return program, left_by_modules(program, keep_float)
    prepared, exported = prepare(
        model,
        example_inputs,
        scheme,
        chosen,
        calibration=calibration,
        methods=applied,
        fresh=fresh,
        dynamic_shapes=dynamic_shapes,
        progress=progress,
        example_kwargs=example_kwargs,
        exported=exported,
    )
    quantized = _converted(prepared)
    program = _exported(quantized, exported, example_inputs, dynamic_shapes, example_kwargs)
    return program, chosen.left


def _exported(
    model: torch.nn.Module,
    like: ExportedProgram | None,
    inputs: Sequence[Any],
    dynamic_shapes: Any,
    keywords: Mapping[str, Any] | None,
) -> ExportedProgram:
    """like: whose module the model is, or was; then there is mostly nothing to trace."""
    if like is not None and isinstance(model, torch.fx.GraphModule):
        program = relift(model, like)
        if program is not None:
            return program
    return export_module(model, inputs, dynamic_shapes, keywords)


def _batch_norm(*args: Any) -> torch.Tensor:
    """Stands for the operator while torchao converts, and computes constants (standardized
    weights)."""
    normalized: torch.Tensor = torch.ops.aten.batch_norm.default(*args)
    return normalized


def _converted(prepared: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """What `convert_pt2e` makes. Where it sees a batch norm it looks for each pattern of training
    with quantization, which takes half a minute; there are none here."""
    operator = torch.ops.aten.batch_norm.default
    for node in prepared.graph.nodes:
        if node.target is operator:
            node.target = _batch_norm
    quantized: torch.fx.GraphModule = convert_pt2e(prepared)
    for node in quantized.graph.nodes:
        if node.target is _batch_norm:
            node.target = operator
    quantized.recompile()
    return quantized


def configured(
    quantizer: Callable[[], TableQuantizer],
    scheme: Scheme,
    keep_float: Sequence[str] = (),
    methods: Sequence[Method] = (),
) -> TableQuantizer:
    """The backend's quantizer, set to do what the scheme and the methods say."""
    config = _config(scheme)
    for method in methods:
        config = method.configure(config) if method.configure else config
    chosen = quantizer().set_global(config)
    for name in keep_float:
        chosen.set_module_name(name, None)
    return chosen


def prepare(
    model: torch.nn.Module,
    example_inputs: Sequence[Any],
    scheme: Scheme,
    quantizer: Quantizer,
    *,
    calibration: Iterable[Any] | None = None,
    methods: Sequence[Method] = (),
    fresh: Callable[[], TableQuantizer] | None = None,
    dynamic_shapes: Any = None,
    progress: bool = True,
    example_kwargs: Mapping[str, Any] | None = None,
    exported: ExportedProgram | None = None,
) -> tuple[torch.fx.GraphModule, ExportedProgram]:
    """The export with observers that have seen the calibration data, ready to be converted; and
    the export as it was.

    fresh: makes quantizers such as this one, for methods. Methods look at the first batches only
    (STUDIED), which are held in memory. exported: as for `quantize_and_tell`.
    """
    if scheme.needs_calibration and calibration is None:
        raise ValueError(
            f"[quantize] {scheme.name} needs calibration data; got none; try calibration=[...] "
            f"with inputs such as the model will see, or quantize='int8-dynamic'"
        )
    exported = _exported(model, exported, example_inputs, dynamic_shapes, example_kwargs)
    exported = upcast(without_vmap(exported))
    graph = exported.module()
    # What the model writes to its buffers while it is calibrated is not their first value.
    state = _buffers(graph)
    studied: list[Batch] = []
    if methods and calibration is not None:
        studied, calibration = first_batches(
            calibration,
            example_inputs,
            example_kwargs,
            any_size=dynamic_shapes is not None,
            count=STUDIED,
        )
    for method in methods:
        if method.before is not None and fresh is not None:
            method.before(graph, studied, fresh)
    for method in methods:
        if method.choose is not None and fresh is not None:
            assert isinstance(quantizer, TableQuantizer)
            method.choose(graph, quantizer, fresh)
    prepared: torch.fx.GraphModule = prepare_pt2e(graph, quantizer)
    if scheme.needs_calibration:
        assert calibration is not None
        with watched_activations(prepared):
            calibrate(
                prepared,
                calibration,
                example_inputs,
                example_kwargs,
                any_size=dynamic_shapes is not None,
                progress=progress,
            )
    else:
        with torch.no_grad():
            # observers of weights look at them when called
            prepared(*example_inputs, **(example_kwargs or {}))
    for method in methods:
        if method.after is not None:
            method.after(prepared, studied)
    _put_back(state)
    return prepared, exported


State = list[tuple[torch.Tensor, torch.Tensor]]


def _buffers(model: torch.nn.Module) -> State:
    """With what they hold now, for `_put_back`."""
    return [(buffer, buffer.clone()) for buffer in model.buffers()]


def _put_back(state: State) -> None:
    with torch.no_grad():
        for buffer, first in state:
            buffer.copy_(first)


def _config(scheme: Scheme) -> QuantizationConfig:
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=scheme.is_dynamic)
    if scheme.activations is None:
        return QuantizationConfig(None, None, config.weight, None)
    return config


def with_integer_weights(
    model: torch.nn.Module,
    scheme: Scheme,
    keep_float: Sequence[str] = (),
    *,
    methods: Sequence[Method] = (),
    inputs: Sequence[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    studied: Sequence[Batch] = (),
) -> torch.nn.Module:
    """A copy whose linear layers and embeddings hold integers, by torchao's `quantize_`.

    inputs, keywords, studied: example inputs, by position and by name, and batches for the
    methods, if there are some. ValueError if the group size does not divide the input features of
    a linear layer.
    """
    assert scheme.group_size is not None
    model = copy.deepcopy(model).eval()
    model = _with_plain_layers(model)
    bits = getattr(torch, f"int{scheme.weights}")
    group = PerGroup(scheme.group_size)
    others = _read_elsewhere(model, inputs, keywords)
    if others:
        warnings.warn(
            "[quantize] layers stay in floating point whose weights other operators read, too: "
            + ", ".join(f"{name} ({function})" for name, function in others.items()),
            stacklevel=2,
        )

    def chosen(module: torch.nn.Module, name: str) -> bool:
        return name not in others and not any(is_within(name, kept) for kept in keep_float)

    def is_grouped(module: torch.nn.Module, name: str) -> bool:
        return isinstance(module, torch.nn.Linear) and _is_plain(module) and chosen(module, name)

    grouped = {n: m.in_features for n, m in model.named_modules() if is_grouped(m, n)}
    odd = [name for name, features in grouped.items() if features % scheme.group_size]
    if odd:
        raise ValueError(
            f"[quantize] group_size must divide the input features of linear layers; got "
            f"{scheme.group_size} for {_listed(grouped, odd)}; try "
            f"{f'keep_float={odd} or ' if odd != [''] else ''}another group_size"
        )
    known = _before_groups(model, scheme, methods, inputs, keywords, studied) if methods else {}
    quantize_(
        model,
        IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)),
        lambda module, name: isinstance(module, torch.nn.Embedding) and chosen(module, name),
    )
    if scheme.is_dynamic:
        # The integers are found for scales as XNNPACK's kernels have them.
        config: Any = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=bits, weight_granularity=group, weight_scale_dtype=torch.bfloat16
        )
    else:
        config = IntxWeightOnlyConfig(weight_dtype=bits, granularity=group)
    for name in grouped:
        module = model.get_submodule(name)
        weight: Any = module.weight
        quantize_(module, config, lambda one, _, it=module: one is it)
        fit_groups(module.weight, weight, scheme.weights)
    round_groups_in_turn(model, known, scheme.weights)
    return model


def _before_groups(
    model: torch.nn.Module,
    scheme: Scheme,
    methods: Sequence[Method],
    inputs: Sequence[Any],
    keywords: Mapping[str, Any] | None,
    studied: Sequence[Batch],
) -> Mapping[str, tuple[torch.Tensor, torch.Tensor]]:
    """Changes the model's parameters as the methods say; what those that round need, if any."""
    assert scheme.group_size is not None
    graph = export_module(model, inputs, None, keywords).module()
    for method in methods:
        if method.groups is not None:
            method.groups(graph, studied, scheme.group_size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(graph.get_parameter(name))
    rounds = any(method.rounds_groups for method in methods)
    return moments_by_weight(graph, studied) if rounds else {}


def _with_plain_layers(model: torch.nn.Module) -> torch.nn.Module:
    """Linear layers whose weight is computed from others (`weight_norm`, ...) hold what it is, and
    those with a `forward` of their own that is `nn.Linear`'s in other words have that."""
    for name, module in list(model.named_modules()):
        if not isinstance(module, torch.nn.Linear) or _is_read_by_parent(module):
            continue
        if not parametrize.is_parametrized(module):
            if not _is_plain(module) and _is_same(module):
                vars(module)["forward"] = MethodType(torch.nn.Linear.forward, module)
            continue
        size = module.in_features, module.out_features
        plain = torch.nn.Linear(*size, bias=module.bias is not None, dtype=module.weight.dtype)
        plain.load_state_dict({k: getattr(module, k) for k, _ in plain.named_parameters()})
        if not name:
            return plain.eval()
        model.set_submodule(name, plain.eval())
    return model


class _Reads(TorchFunctionMode):
    """What makes tensors of the weights, other than linear layers and embeddings."""

    def __init__(self, weights: Mapping[int, Sequence[str]]) -> None:
        super().__init__()
        self._weights = weights
        self.found: dict[str, str] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in _LAYERS and isinstance(result, (torch.Tensor, list, tuple)):
            for value in pytree.tree_leaves((args, kwargs)):
                for name in self._weights.get(id(value), ()):
                    self.found[name] = getattr(func, "__name__", str(func))
        return result


_LAYERS = (torch.nn.functional.linear, torch.embedding, torch.nn.functional.embedding)


def _read_elsewhere(
    model: torch.nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any] | None
) -> dict[str, str]:
    """Linear layers and embeddings whose weight something else reads when the model runs, and what
    does: a table of queries that is split, say."""
    if not inputs and not keywords:
        return {}
    weights: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        is_linear = isinstance(module, torch.nn.Linear) and _is_plain(module)
        if is_linear or isinstance(module, torch.nn.Embedding):
            weights.setdefault(id(module.weight), []).append(name)
    reads, state = _Reads(weights), _buffers(model)
    # A model may write to its inputs and its buffers.
    given, named = copy.deepcopy((tuple(inputs), dict(keywords or {})))
    try:
        with torch.no_grad(), reads:
            model(*given, **named)
    except Exception:  # torch.export says what is wrong, and where
        return {}
    finally:
        _put_back(state)
    return reads.found


def _is_read_by_parent(module: torch.nn.Linear) -> bool:
    """Attention reads this one's weight by itself, as a plain tensor."""
    return isinstance(module, torch.nn.modules.linear.NonDynamicallyQuantizableLinear)


def _is_plain(module: torch.nn.Linear) -> bool:
    """Whether its weight is read by `torch.nn.functional.linear` alone."""
    forward = getattr(module.forward, "__func__", None)
    return not _is_read_by_parent(module) and forward is torch.nn.Linear.forward


def _is_same(module: torch.nn.Linear) -> bool:
    """Whether its `forward` computes what `nn.Linear`'s does: tried on random rows."""
    weight = module.weight
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, module.in_features, generator=generator).to(weight)
    try:
        with torch.no_grad():
            found = module(x)
            expected = torch.nn.functional.linear(x, weight, module.bias)
    except Exception:  # it is for other inputs, or reads what its parent sets
        return False
    return isinstance(found, torch.Tensor) and torch.allclose(found, expected, 1e-3, 1e-4)


def _listed(features: Mapping[str, int], names: Sequence[str]) -> str:
    return ", ".join(f"{name or 'the model itself'} ({features[name]})" for name in names)


def _check_dtypes(model: torch.nn.Module, dtypes: Sequence[torch.dtype]) -> None:
    """ValueError if the model has weights, and none is of a type that is quantized."""
    tensors: list[torch.Tensor] = [*model.parameters()]
    tensors = tensors or [*model.buffers()]
    found = {one.dtype for one in tensors if one.is_floating_point()}
    if found and not found.intersection(dtypes):
        names = [dtype_name(d) for d in sorted(found, key=str)]
        *others, last = (dtype_name(d) for d in dtypes)
        wanted = f"{', '.join(others)} or {last}"
        raise ValueError(
            f"[quantize] weights must be {wanted} to be quantized; got {' and '.join(names)}; "
            f"try model.float(), and inputs of float32"
        )


def _check_names(model: torch.nn.Module, names: Sequence[Any]) -> None:
    if isinstance(names, str):
        raise TypeError(
            f"[quantize] keep_float must be a list of names; got {names!r}; try [{names!r}]"
        )
    known = {name for name, _ in model.named_modules()}
    for one in names:
        if not isinstance(one, str):
            own = next((name for name, module in model.named_modules() if module is one), None)
            raise TypeError(
                f"[quantize] keep_float must be a list of names; got {type(one).__name__}; "
                f"try {repr(own) if own else 'names of model.named_modules()'}"
            )
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"[quantize] keep_float must name modules of the model; got {', '.join(unknown)}; "
            f"try {_like(unknown[0], known)}"
        )


def _like(name: str, known: set[str]) -> str:
    near = get_close_matches(name, sorted(known - {""}), n=3, cutoff=0.5)
    return " or ".join(map(repr, near)) or "names of model.named_modules()"
