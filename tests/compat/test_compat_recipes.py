"""`executorch.export`: recipes and sessions, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.passes.infra.pass_base import PassResult

from edgewise.compat.passes import PassManager
from edgewise.compat.recipes import (
    AOQuantizationConfig,
    ExportRecipe,
    LoweringRecipe,
    QuantizationRecipe,
    RecipeType,
    StageType,
    recipe_registry,
)
from edgewise.compat.session import ExportSession, PipelineArtifact, Stage, export
from edgewise.compat.xnnpack_recipes import XNNPackRecipeType

S = StageType
_GENERATOR = torch.Generator().manual_seed(0)
INPUTS = [(torch.randn(3, 64, generator=_GENERATOR),) for _ in range(2)]


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))


def decibels(wanted: torch.Tensor, got: Any) -> float:
    wanted = wanted.detach()
    noise = float((wanted - torch.as_tensor(got)).square().sum())
    return 10 * float(torch.log10(wanted.square().sum() / noise)) if noise else 200.0


# Recipe | options | least signal to noise against the float model, in decibels.
RECIPES: dict[str, tuple[XNNPackRecipeType, dict[str, Any], float]] = {
    "float": (XNNPackRecipeType.FP32, {}, 100),
    "dynamic": (XNNPackRecipeType.PT2E_INT8_DYNAMIC_PER_CHANNEL, {}, 30),
    "channel": (XNNPackRecipeType.PT2E_INT8_STATIC_PER_CHANNEL, {}, 28),
    "tensor": (XNNPackRecipeType.PT2E_INT8_STATIC_PER_TENSOR, {}, 28),
    "4 bits": (XNNPackRecipeType.TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_CHANNEL, {}, 14),
    "groups": (
        XNNPackRecipeType.TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_TENSOR,
        {"group_size": 32},
        14,
    ),
}


@pytest.mark.parametrize("case", RECIPES)
def test_recipes(case: str) -> None:
    kind, options, least = RECIPES[case]
    session = export(model(), INPUTS, ExportRecipe.get_recipe(kind, **options))
    (got,) = session.run_method()
    assert decibels(model()(*INPUTS[0]), got) > least
    program = session.get_executorch_program()
    assert len(program.execution_plan[0].chains[0].instructions) == 1  # one delegate
    assert session.get_edge_program_manager().methods == {"forward"}


def test_what_a_session_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = export(model(), INPUTS, ExportRecipe.get_recipe(XNNPackRecipeType.FP32))
    session.save_to_pte(str(tmp_path / "model.pte"))
    assert (tmp_path / "model.pte").read_bytes() == session.get_pte_buffer()
    session.print_delegation_info()
    assert "XnnpackBackend" in capsys.readouterr().out
    assert session.get_etrecord().method().instructions
    assert [*session.get_stage_artifacts()] == [*_default("nn.Module")]
    assert session.get_exported_program().graph_signature.user_inputs == ("input",)
    with pytest.raises(KeyError, match="not found"):
        session.get_exported_program("encode")


def _default(kind: str) -> list[StageType]:
    first = {"nn.Module": [S.SOURCE_TRANSFORM, S.QUANTIZE, S.TORCH_EXPORT]}.get(kind, [])
    return [*first, S.TO_EDGE_TRANSFORM_AND_LOWER, S.TO_EXECUTORCH]


@pytest.mark.parametrize("case", RECIPES)
def test_open_sizes_by_argument_are_not_dropped(case: str) -> None:
    kind, options, least = RECIPES[case]
    session = export(
        model(),
        INPUTS,
        ExportRecipe.get_recipe(kind, **options),
        dynamic_shapes={"input": {0: torch.export.Dim("batch", max=9)}},
    )
    inputs = torch.cat([one for (one,) in INPUTS])
    (got,) = session.run_method("forward", (inputs,))
    assert decibels(model()(inputs), got) > least


def test_several_methods_from_programs_and_a_path(tmp_path: Path) -> None:
    program = torch.export.export(model(), INPUTS[0])
    recipe = ExportRecipe.get_recipe(XNNPackRecipeType.FP32)
    session = export({"one": program, "two": program}, None, recipe)
    assert session.get_executorch_program_manager().methods == {"one", "two"}
    torch.export.save(program, tmp_path / "model.pt2")
    again = export(str(tmp_path / "model.pt2"), None, recipe)
    (got,) = again.run_method("forward", INPUTS[0])
    assert decibels(model()(*INPUTS[0]), got) > 100


def test_passes_and_separate_stages() -> None:
    seen: list[str] = []

    def note(name: str) -> Any:
        def one(module: torch.fx.GraphModule) -> PassResult:
            seen.append(name)
            return PassResult(module, False)

        return one

    recipe = ExportRecipe.get_recipe(XNNPackRecipeType.FP32)
    assert recipe.lowering_recipe is not None
    recipe.lowering_recipe.edge_transform_passes = [
        lambda method, program: [note("listed")],
        lambda method, program: PassManager([[note("managed")]]),
    ]
    recipe.lowering_recipe.edge_manager_transform_passes = [lambda manager: [note("last")]]
    recipe.aten_transform_passes = [lambda method, program: seen.append(method) or program]  # type: ignore[func-returns-value]
    recipe.pipeline_stages = [
        S.TORCH_EXPORT,
        S.TO_EDGE,
        S.EDGE_PROGRAM_MANAGER_TRANSFORM,
        S.TO_BACKEND,
        S.TO_EXECUTORCH,
    ]
    (got,) = export(model(), INPUTS, recipe).run_method()
    assert decibels(model()(*INPUTS[0]), got) > 100
    assert seen == ["forward", "listed", "managed", "last"]


class Doubled(Stage):
    """Doubles the weights in the place of the quantization."""

    stage_type = S.QUANTIZE
    valid_predecessor_stages = [S.SOURCE_TRANSFORM]  # noqa: RUF012
    can_start_pipeline = True

    def run(self, artifact: PipelineArtifact) -> None:
        for one in artifact.data.values():
            with torch.no_grad():
                one[2].weight.mul_(2)
                one[2].bias.mul_(2)
        assert artifact.get_context("example_inputs")["forward"] is INPUTS
        self._artifact = artifact


def test_a_stage_of_ones_own() -> None:
    session = ExportSession(model(), INPUTS, ExportRecipe())
    with pytest.raises(RuntimeError, match="not executed"):
        Doubled().get_artifacts()
    session.register_stage(S.QUANTIZE, Doubled())
    session.export()
    (got,) = session.run_method()
    assert decibels(2 * model()(*INPUTS[0]), got) > 100


def test_combined_recipes() -> None:
    made = ExportRecipe.combine(
        [
            ExportRecipe.get_recipe(XNNPackRecipeType.PT2E_INT8_STATIC_PER_CHANNEL),
            ExportRecipe.get_recipe(XNNPackRecipeType.FP32),
        ]
    )
    assert made.name == "xnnpack_pt2e_int8_static_per_channel_xnnpack_fp32"
    assert made.lowering_recipe is not None
    assert len(made.lowering_recipe.partitioners or ()) == 2
    assert made.quantization_recipe is not None
    (got,) = export(model(), INPUTS, made).run_method()
    assert 28 < decibels(model()(*INPUTS[0]), got) < 100


def test_unknown_options_are_said(caplog: pytest.LogCaptureFixture) -> None:
    ExportRecipe.get_recipe(XNNPackRecipeType.FP32, group_size=32)
    assert "left out; got ['group_size']" in caplog.text


class Other(RecipeType):
    ONE = "one"


class Elsewhere(RecipeType):
    ONE = "one"

    @classmethod
    def get_backend_name(cls) -> str:
        return "elsewhere"


class Unsupported(RecipeType):
    ONE = "one"

    @classmethod
    def get_backend_name(cls) -> str:
        return "xnnpack"


def _session(stages: list[Any], given: Any = None) -> ExportSession:
    return export(given or model(), INPUTS, ExportRecipe(pipeline_stages=stages))


PROGRAM = torch.export.export(model(), INPUTS[0])
TWO = QuantizationRecipe(ao_quantization_configs=[AOQuantizationConfig(None)] * 2)
BY_GROUP = XNNPackRecipeType.TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_TENSOR

# What is done | the error | its text.
REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no recipe": (lambda: ExportRecipe.get_recipe("fp32"), ValueError, "Invalid recipe type"),  # type: ignore[arg-type]
    "no backend's name": (lambda: ExportRecipe.get_recipe(Other.ONE), NotImplementedError, "must"),
    "no such backend": (
        lambda: ExportRecipe.get_recipe(Elsewhere.ONE),
        ValueError,
        "Backend 'elsewhere' not available; try one of",
    ),
    "not supported": (
        lambda: ExportRecipe.get_recipe(Unsupported.ONE),
        ValueError,
        "not supported by 'xnnpack'; try one of",
    ),
    "group size": (
        lambda: ExportRecipe.get_recipe(BY_GROUP, group_size="32"),
        ValueError,
        "must be an integer, got str: 32",
    ),
    "nothing to combine": (lambda: ExportRecipe.combine([]), ValueError, "cannot be empty"),
    "two configurations": (
        lambda: export(model(), INPUTS, ExportRecipe(quantization_recipe=TWO)),
        ValueError,
        "disallowed",
    ),
    "no inputs": (lambda: export(model()), ValueError, "example_inputs are required"),
    "empty inputs": (lambda: export(model(), []), ValueError, "not found or empty"),
    "no model": (lambda: export(3, INPUTS), TypeError, "Unsupported model type: got int"),
    "inputs of several": (
        lambda: export({"a": model(), "b": model()}, INPUTS),
        ValueError,
        "must be dicts by method",
    ),
    "first stage": (lambda: _session([S.TO_EXECUTORCH]), ValueError, "cannot start a pipeline"),
    "order": (
        lambda: _session([S.TORCH_EXPORT, S.TO_EXECUTORCH]),
        ValueError,
        "Invalid transition",
    ),
    "done already": (
        lambda: _session([S.TORCH_EXPORT], PROGRAM),
        ValueError,
        "Cannot run TORCH_EXPORT",
    ),
    "unknown stage": (lambda: _session(["polish"]), ValueError, "try register_stage"),
    "passes that are none": (
        lambda: export(model(), INPUTS, ExportRecipe(aten_transform_passes=[3])),  # type: ignore[list-item]
        ValueError,
        "must be callable",
    ),
    "passes of no function": (
        lambda: export(
            model(),
            INPUTS,
            ExportRecipe(lowering_recipe=LoweringRecipe(edge_transform_passes=[3])),  # type: ignore[list-item]
        ),
        ValueError,
        "must be callable",
    ),
    "too early": (
        lambda: ExportSession(model(), INPUTS).get_pte_buffer(),
        RuntimeError,
        "Executorch program manager is not initialized",
    ),
    "no name": (lambda: export(model(), INPUTS).save_to_pte(""), AssertionError, "valid output"),
    "no such input": (
        lambda: ExportSession(model(), INPUTS).get_example_input("encode"),
        KeyError,
        "not found",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    call, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text):
        call()


def test_the_registry_is_one() -> None:
    assert type(recipe_registry)() is recipe_registry
    assert list(recipe_registry.list_backends()) == ["xnnpack"]
    assert [*recipe_registry.get_supported_recipes("xnnpack")] == [*XNNPackRecipeType]
