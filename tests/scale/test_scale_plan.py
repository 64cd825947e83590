"""Plans: what they mean, and what is said of those that cannot be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgewise.scale import PlanError, make_plan, read_plan
from edgewise.scale.plan import Latency
from edgewise.scale.task import Limits

MODEL: dict[str, Any] = {"models": {"m": "zoo.py:f"}}
EVALUATION: dict[str, Any] = {"evaluation": "zoo.py:e", "metrics": "top1"}

BAD = [
    ({}, "[models] must be a mapping; got nothing"),
    ([], "[] must be a mapping; got []"),
    ({"models": {}}, "[models] must hold at least one"),
    ({"models": {"m": "zoo.py"}}, "[models.m.source] must be 'file.py:function' or a .pt2 file"),
    ({"models": {"m": {}}}, "[models.m.source] must be text; got nothing"),
    ({"models": {"m": {"sauce": "a.pt2"}}}, "[models.m.source] must be text"),
    (
        {"models": {"m": {"source": "zoo.py:f", "argments": {}}}},
        "[models.m.argments] is no key here; there are calibration, evaluation, source, inputs, "
        "arguments; got 'argments'; try arguments",
    ),
    ({"models": {"m": {"source": "a.pt2", "inputs": "z.py:i"}}}, "[models.m.inputs] is of no use"),
    (MODEL | {"backend": "xnnpack"}, "[backend] is no key here"),
    (MODEL | {"backends": ["xnpack"]}, "[backends[0]] must be one of xnnpack, coreml"),
    (MODEL | {"backends": ["ethos-u55-100"]}, "[backends[0]] must be one of ethos-u55-128"),
    (MODEL | {"backends": ["neutron-imx"]}, "[backends[0]] must be one of neutron-imx"),
    (MODEL | {"backends": [3]}, "[backends[0]] must be text; got 3"),
    (MODEL | {"quantize": ["int9"]}, "[quantize[0].scheme] must be one of none, int8"),
    (MODEL | {"quantize": ["int8", "int8"]}, "[quantize[1].name] must differ from the others'"),
    (MODEL | {"quantize": [{"scheme": "int8", "group_size": 32}]}, "[quantize[0].group_size]"),
    (MODEL | {"quantize": [{"keep_float": ["a"]}]}, "[quantize[0].keep_float] is for what is"),
    (MODEL | {"quantize": [{"scheme": "int8", "search": {}}]}, "[quantize[0].search] needs eval"),
    (MODEL | {"calibration": {"limit": 3}}, "[calibration.limit] must be a mapping; got 3"),
    (MODEL | {"calibration": {"source": "z.py:c", "limit": 0}}, "[calibration.limit] must be a wh"),
    (MODEL | {"evaluation": "z.py:e"}, "[metrics] must name what evaluation data are for"),
    (MODEL | {"metrics": "top1"}, "[evaluation] must be given for metrics"),
    (MODEL | {"evaluation": "z.py:e", "metrics": "top2"}, "[metrics[0]] must be one of top1"),
    (MODEL | {"latency": {"threads": 0}}, "[latency.threads] must be a whole number of at least"),
    (MODEL | {"limits": {"memory": "4 bananas"}}, "[limits.memory] must be a size; got '4 banan"),
    (MODEL | {"limits": {"seconds": "long"}}, "[limits.seconds] must be a number"),
    (MODEL | {"skip": [{"modle": "m"}]}, "[skip[0].modle] is no key here"),
    (MODEL | {"skip": [{"model": "m"}]}, "[skip] must leave a combination"),
]


@pytest.mark.parametrize(("value", "message"), BAD, ids=[text[:48] for _, text in BAD])
def test_errors_name_the_key(value: Any, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        make_plan(value)
    assert str(caught.value).startswith(message), str(caught.value)


def test_combinations() -> None:
    plan = make_plan(
        {
            "models": {
                "a": "zoo.py:a",
                "b": {"source": "b.pt2", "calibration": {"own": {"source": "z.py:own"}}},
            },
            "backends": ["xnnpack", "ethos-u55-128"],
            "quantize": ["none", "int8", {"name": "mixed", "scheme": "int8", "keep_float": "fc"}],
            "calibration": {"few": {"source": "z.py:c", "limit": 4}, "many": "z.py:c"},
            "skip": [{"backend": "ethos-u55-128", "quantize": "none"}, {"model": "a",
                     "quantize": "mixed"}],
            **EVALUATION,
            "limits": {"seconds": 5, "memory": "1.5 GiB"},
            "latency": {"threads": 2},
        }
    )  # fmt: skip
    assert [c.name for c in plan.combinations] == [
        "a · xnnpack · none",
        "a · xnnpack · int8 · few",
        "a · xnnpack · int8 · many",
        "a · ethos-u55-128 · int8 · few",
        "a · ethos-u55-128 · int8 · many",
        "b · xnnpack · none",
        "b · xnnpack · int8 · own",
        "b · xnnpack · mixed · own",
        "b · ethos-u55-128 · int8 · own",
        "b · ethos-u55-128 · mixed · own",
    ]
    assert plan.limits == Limits(5, 1610612736)
    assert plan.latency == Latency(2, 0.5)


def test_what_cannot_be_lowered_is_known_beforehand() -> None:
    plan = make_plan(
        MODEL | {"backends": ["none", "ethos-u55-128"], "quantize": ["none", "int8-dynamic"]}
    )
    assert [c.impossible for c in plan.combinations] == [
        "",
        "no backend, no quantizer",
        "",
        "ethos-u55-128 computes in integers: only int8",
    ]


def test_plans_of_the_examples() -> None:
    folder = Path(__file__).parents[2] / "examples" / "sweep"
    counts = {path.name: len(read_plan(path).combinations) for path in folder.glob("*.yaml")}
    assert counts == {"digits.yaml": 12, "models.yaml": 15}


def test_files(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"\[plan\] a file must be there"):
        read_plan(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("models: [")
    with pytest.raises(PlanError, match=r"\[plan\] .*bad.yaml must be YAML"):
        read_plan(tmp_path / "bad.yaml")
    (tmp_path / "mine.yaml").write_text("models: {m: 'zoo.py:f'}")
    plan = read_plan(tmp_path / "mine.yaml")
    assert (plan.name, plan.root, plan.backends) == ("mine", str(tmp_path), ("xnnpack",))
