"""From a file or a mapping to a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgewise.quantize.schemes import SCHEMES, scheme_of
from edgewise.registry import DEFAULT, NO_BACKEND, backends, target_names
from edgewise.scale.checked import PlanError, Section, fail, one_of
from edgewise.scale.metrics import METRICS
from edgewise.scale.plan import DataSpec, Latency, ModelSpec, Plan, Search, Setting
from edgewise.scale.plan_text import read_yaml
from edgewise.scale.sources import is_exported
from edgewise.scale.task import Limits


def read_plan(path: str | Path) -> Plan:
    """Of a YAML file; its paths start from the file's folder. PlanError if it cannot be run."""
    path = Path(path)
    try:
        value = read_yaml(path)
    except FileNotFoundError:
        raise PlanError(f"[plan] a file must be there; got none at {path}") from None
    except ValueError as failure:
        raise PlanError(f"[plan] {path} must be YAML; got {failure}") from failure
    return make_plan(value, root=path.resolve().parent, name=path.stem)


def make_plan(value: Any, *, root: str | Path = ".", name: str = "sweep") -> Plan:
    """Of a mapping as the YAML file holds it."""
    top = Section({} if value is None else value, "")
    calibration = _data_sets(top, "calibration")
    evaluation = _data_sets(top, "evaluation")
    metrics = _metrics(top)
    plan = Plan(
        models=_models(top, calibration, evaluation),
        backends=_backends(top),
        settings=_settings(top),
        metrics=metrics,
        latency=_latency(top),
        limits=_limits(top),
        skip=_skip(top),
        out=top.text("out", "results"),
        root=str(root),
        name=top.text("name", name),
    )
    top.done()
    if any(m.evaluation for m in plan.models) and not metrics:
        raise fail("metrics", "must name what evaluation data are for", "nothing", "[top1]")
    if metrics and not any(m.evaluation for m in plan.models):
        raise fail("evaluation", "must be given for metrics", "nothing")
    _check_searches(plan)
    if not plan.combinations:
        raise fail("skip", "must leave a combination", "none")
    return plan


def _models(
    top: Section, calibration: tuple[DataSpec, ...], evaluation: tuple[DataSpec, ...]
) -> tuple[ModelSpec, ...]:
    models = []
    for name, value in Section(top.get("models"), "models").items():
        key = f"models.{name}"
        one = Section({"source": value} if isinstance(value, str) else value, key)
        own_calibration = _data_sets(one, "calibration")
        own_evaluation = _data_sets(one, "evaluation")
        source = _source(one, "source", exported=True)
        inputs = _source(one, "inputs") if one.has("inputs") else None
        if is_exported(source) and inputs is not None:
            raise fail(one.at("inputs"), "is of no use: a .pt2 file holds its inputs", inputs)
        models.append(
            ModelSpec(
                name=name,
                source=source,
                arguments=_arguments(one),
                inputs=inputs,
                calibration=own_calibration or calibration,
                evaluation=own_evaluation or evaluation,
            )
        )
        one.done()
    if not models:
        raise fail("models", "must hold at least one", "none")
    return tuple(models)


def _data_sets(section: Section, name: str) -> tuple[DataSpec, ...]:
    """One set (text, or a mapping with `source`), or several by name."""
    value = section.get(name)
    if value is None:
        return ()
    key = section.at(name)
    if isinstance(value, str) or (isinstance(value, Mapping) and "source" in value):
        return (_data(value, key, name),)
    return tuple(_data(v, f"{key}.{n}", n) for n, v in Section(value, key).items())


def _data(value: Any, key: str, name: str) -> DataSpec:
    one = Section({"source": value} if isinstance(value, str) else value, key)
    found = DataSpec(
        name=name,
        source=_source(one, "source"),
        arguments=_arguments(one),
        limit=one.number("limit", None, least=1, whole=True),
        version=str(one.get("version", "")),
    )
    one.done()
    return found


def _backends(top: Section) -> tuple[str, ...]:
    found = top.texts("backends") or [DEFAULT]
    for index, name in enumerate(found):
        # Names that only a compiler knows are not for a plan: it is checked before it is run.
        if name not in target_names():
            family = [b for b in backends() if name.startswith(b.name) and b.name != name]
            alone = [b.name for b in backends() if b.name in b.targets()]
            examples = [b.example for b in backends() if b.example]
            known = sorted(family[0].targets()) if family else [*alone, NO_BACKEND, *examples]
            one_of(name, known, f"backends[{index}]")
    return tuple(dict.fromkeys(found))


def _settings(top: Section) -> tuple[Setting, ...]:
    value = top.get("quantize", ["none"])
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    found = [_setting(one, f"quantize[{index}]") for index, one in enumerate(values)]
    names = [one.name for one in found]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise fail(f"quantize[{index}].name", "must differ from the others'", repr(name))
    if not found:
        raise fail("quantize", "must hold at least one", "none", "[none, int8]")
    return tuple(found)


def _setting(value: Any, key: str) -> Setting:
    one = Section({"scheme": value} if isinstance(value, str | None) else value, key)
    name = one.get("scheme") or "none"
    scheme = None if name == "none" else one_of(str(name), ["none", *SCHEMES], one.at("scheme"))
    group = one.number("group_size", None, least=1, whole=True)
    if group is not None:
        if scheme is None:
            raise fail(one.at("group_size"), "is for schemes with groups", group)
        try:
            scheme_of(scheme, group)
        except ValueError as failure:
            raise PlanError(f"[{one.at('group_size')}] {failure}") from failure
    search = None
    if one.has("search"):
        inner = Section(one.get("search"), one.at("search"))
        search = Search(
            inner.number("target_db", None), inner.number("limit", 6, least=1, whole=True)
        )
        inner.done()
        if scheme is None:
            raise fail(one.at("search"), "is for what is quantized", "scheme none")
    kept = tuple(one.texts("keep_float"))
    if kept and scheme is None:
        raise fail(one.at("keep_float"), "is for what is quantized", "scheme none")
    default = "-".join(
        [str(name), *([f"g{group}"] if group else []), *(["search"] if search else [])]
    )
    setting = Setting(one.text("name", default), scheme, group, kept, search)
    one.done()
    return setting


def _metrics(top: Section) -> tuple[str, ...]:
    names = top.texts("metrics")
    for index, name in enumerate(names):
        if ":" in name:
            _check_source(name, f"metrics[{index}]", exported=False)
        else:
            one_of(name, list(METRICS), f"metrics[{index}]")
    return tuple(names)


def _latency(top: Section) -> Latency | None:
    value = top.get("latency", {})
    if value is False or value is None:
        return None
    one = Section({} if value is True else value, "latency")
    found = Latency(
        one.number("threads", 1, least=1, whole=True), float(one.number("seconds", 0.5, least=0.01))
    )
    one.done()
    return found


def _limits(top: Section) -> Limits:
    one = Section(top.get("limits", {}), "limits")
    found = Limits(one.number("seconds", 1800, least=0.1), one.size("memory"))
    one.done()
    return found


def _skip(top: Section) -> tuple[Mapping[str, str], ...]:
    value = top.get("skip", [])
    if not isinstance(value, list):
        raise fail("skip", "must be a list of mappings", repr(value))
    rules = []
    for index, rule in enumerate(value):
        one = Section(rule, f"skip[{index}]")
        rules.append({k: one.text(k) for k in ("model", "backend", "quantize") if one.has(k)})
        one.done()
        if not rules[-1]:
            raise fail(f"skip[{index}]", "must name a model, backend or quantize", "nothing")
    return tuple(rules)


def _check_searches(plan: Plan) -> None:
    for index, setting in enumerate(plan.settings):
        for model in plan.models:
            if setting.search is not None and not model.evaluation:
                raise fail(
                    f"quantize[{index}].search", "needs evaluation data", f"none for {model.name}"
                )


def _source(section: Section, name: str, *, exported: bool = False) -> str:
    text = section.text(name)
    _check_source(text, section.at(name), exported)
    return text


def _check_source(text: str, key: str, exported: bool) -> None:
    if exported and is_exported(text):
        return
    if not re.fullmatch(r"(.+\.py|[A-Za-z_][\w.]*):[A-Za-z_][\w.]*", text):
        kinds = "'file.py:function'" + (" or a .pt2 file" if exported else "")
        raise fail(key, f"must be {kinds}", repr(text))


def _arguments(section: Section) -> Mapping[str, Any]:
    value = section.get("arguments", {})
    if not isinstance(value, Mapping):
        raise fail(section.at("arguments"), "must be a mapping", repr(value))
    return {str(k): v for k, v in value.items()}
