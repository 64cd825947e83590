"""A program as a Python callable: structured inputs in, structured outputs out."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from edgewise.runtime import _pytree
from edgewise.runtime._metadata import MethodMeta
from edgewise.runtime._program import Method, Program, Runtime
from edgewise.runtime.errors import InvalidArgumentError, InvalidProgramError, NotFoundError

__all__ = ["Model", "load"]


class Model:
    """A loaded file whose methods are called like the model that it was made from.

    `model(x)` runs the default method, `model.encode(x)` or `model.run("encode", x)`
    another one. Arguments are nested as the model's were (tuples, lists, dicts, keyword
    arguments); the result comes in the structure that the model returned. Each method is
    loaded at its first call and then kept, its state included. May be used by several
    threads: calls of one method take turns.
    """

    def __init__(self, program: Program, default: str) -> None:
        self._program = program
        self._default = default
        self._session = program.new_session()
        self._calls: dict[str, _Call] = {}
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Runs the default method. Raises as `Method.execute`."""
        return self._call(self._default)(inputs, keywords)

    def run(self, method: str, /, *inputs: Any, **keywords: Any) -> Any:
        """Runs the method of that name. Raises NotFoundError, or as `Method.execute`."""
        return self._call(method)(inputs, keywords)

    @property
    def program(self) -> Program:
        return self._program

    @property
    def method_names(self) -> set[str]:
        return self._program.method_names

    @property
    def metadata(self) -> MethodMeta:
        """The default method's."""
        return self._program.metadata(self._default)

    def new_session(self) -> Model:
        """The same program with state of its own, at its first values."""
        return Model(self._program, self._default)

    def reset(self) -> None:
        """Puts the state of all methods back to its first values."""
        with self._lock:
            calls = list(self._calls.values())
        for call in calls:
            call.method.reset()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._program.method_names:
            raise AttributeError(
                f"the model has no method {name!r}; it has {sorted(self._program.method_names)}"
                if not name.startswith("_")
                else name
            )

        def method(*inputs: Any, **keywords: Any) -> Any:
            return self.run(name, *inputs, **keywords)

        method.__name__ = method.__qualname__ = name
        return method

    def _repr_html_(self) -> str:
        """For notebooks: what each method takes and gives."""
        from edgewise import notebook

        rows = []
        for name in sorted(self.method_names):
            meta = self._program.metadata(name)
            told = repr(meta).removeprefix(f"MethodMeta(name={name!r}, inputs=")[:-1]
            inputs, _, outputs = told.partition(", outputs=")
            backends = ", ".join(dict.fromkeys(d.backend for d in meta.delegates)) or "-"
            rows.append((name, inputs[1:-1], outputs[1:-1], backends))
        return notebook.table(["method", "inputs", "outputs", "delegates"], rows)

    def __repr__(self) -> str:
        return f"<edgewise Model, methods {sorted(self.method_names)}>"

    def _call(self, name: str) -> _Call:
        call = self._calls.get(name)
        if call is None:
            with self._lock:
                call = self._calls.get(name)
                if call is None:
                    call = self._calls[name] = _Call(self._session.load_method(name))
        return call


class _Call:
    """A method with the structures of its inputs and outputs."""

    def __init__(self, method: Method) -> None:
        self.method = method
        meta = method.metadata
        self._name = meta.name()
        self._inputs: _pytree.Tree | None = None
        self._names: tuple[str, ...] = ()
        if meta.input_spec:
            self._inputs, self._names = _pytree.parse_call(meta.input_spec)
            _check_leaves("input", self._inputs, meta.num_inputs())
        self._outputs: _pytree.Tree | None = None
        if meta.output_spec:
            self._outputs = _pytree.parse(meta.output_spec)
            _check_leaves("output", self._outputs, meta.num_outputs())
        # Most models take arrays only: nothing to flatten.
        self._plain_count = -1
        if self._inputs is None:
            self._plain_count = meta.num_inputs()
        elif self._takes_keywords:
            positional, named = self._inputs.children
            if positional.is_flat and not named.children:
                self._plain_count = len(positional.children)

    @property
    def _takes_keywords(self) -> bool:
        """Whether the spec is one of a call: a sequence of arguments and a dict of keywords."""
        tree = self._inputs
        if tree is None or tree.kind != "sequence" or len(tree.children) != 2:
            return False
        positional, named = tree.children
        return positional.kind == "sequence" and named.type_name == "builtins.dict"

    def __call__(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if keywords or len(inputs) != self._plain_count:
            inputs = tuple(self._flatten(inputs, keywords))
        try:
            outputs = self.method.execute(inputs)
        except InvalidArgumentError as error:
            raise _explained(error, inputs) from None
        if self._outputs is not None:
            return _pytree.unflatten(self._outputs, outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _flatten(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
        if self._inputs is None or not self._takes_keywords:
            if keywords:
                raise InvalidArgumentError(
                    f"[call] method '{self._name}' takes no keyword arguments; got {list(keywords)}"
                )
            if self._inputs is None:
                return list(inputs)
            return _pytree.flatten(self._inputs, inputs, "arguments")
        positional, named = self._inputs.children
        inputs, keywords = self._bound(inputs, dict(keywords), len(positional.children), named)
        leaves = _pytree.flatten(positional, inputs, "arguments")
        return leaves + _pytree.flatten(named, keywords, "keyword arguments")

    def _bound(
        self, inputs: tuple[Any, ...], keywords: dict[str, Any], count: int, named: _pytree.Tree
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as they were exported: `count` by position, the others by name."""
        order, given = self._names, len(inputs)
        if not order and len(named.keys) == 1:
            order = (*[""] * count, named.keys[0])
        more = order[count : len(inputs)]
        twice = [name for name in more if name in keywords]
        if twice:
            raise InvalidArgumentError(
                f"[call] method '{self._name}' takes each argument once; got {twice[0]} by "
                f"position and by name"
            )
        keywords.update(zip(more, inputs[count:], strict=False))
        inputs, left = (*inputs[:count], *inputs[count + len(more) :]), order[len(inputs) : count]
        if left and all(name in keywords for name in left):
            inputs += tuple(keywords.pop(name) for name in left)
        if len(inputs) != count:
            raise InvalidArgumentError(self._wrong_count(inputs, keywords, count, named, given))
        for key, child in zip(named.keys, named.children, strict=True):
            if child.kind == "none":
                keywords.setdefault(key, None)
        return inputs, keywords

    def _wrong_count(
        self,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        count: int,
        named: _pytree.Tree,
        given: int,
    ) -> str:
        hint = ""
        if len(inputs) == 1 and isinstance(inputs[0], dict) and (named.keys or self._names):
            hint = "; try model(**inputs)"
        elif len(inputs) > count and len(inputs) + len(keywords) == count + len(named.keys):
            hint = f"; try the others by name: {', '.join(map(str, named.keys))}"
        elif len(inputs) + len(keywords) == count and not self._names:
            hint = "; try them without names"
        elif len(inputs) < count and self._names:
            missing = [n for n in self._names[len(inputs) : count] if n not in keywords]
            hint = f"; {', '.join(missing)} missing"
        elif len(inputs) == 1 and isinstance(inputs[0], (tuple, list)):
            hint = "; try model(*inputs)"
        return (
            f"[call] method '{self._name}' takes {count} positional argument{'s' * (count != 1)}; "
            f"got {given}{hint}"
        )


def _explained(error: InvalidArgumentError, inputs: Sequence[Any]) -> InvalidArgumentError:
    """The error, with how to call a model, where inputs came in a container of their own."""
    told = str(error).partition("; try ")[0]
    for given in inputs:
        if isinstance(given, (tuple, list)) and given and hasattr(given[0], "__array__"):
            return InvalidArgumentError(
                f"{told}; try model(*inputs), with one argument for each input"
            )
        if isinstance(given, dict):
            return InvalidArgumentError(f"{told}; try model(*inputs.values())")
    return error


def _check_leaves(role: str, tree: _pytree.Tree, count: int) -> None:
    if tree.leaves != count:
        raise InvalidProgramError(
            f"[pytree] the spec of a method's {role}s must have a leaf for each of {count}; "
            f"got {tree.leaves}; try Runtime.get().load_program(), which works without specs"
        )


def load(
    path: str | Path | bytes | bytearray | memoryview | BinaryIO,
    *,
    threads: int | None = None,
    method: str | None = None,
    data_path: str | Path | Sequence[str | Path] | None = None,
    max_memory: int | None = None,
    cache_dir: str | Path | None = None,
) -> Model:
    """Loads a `.pte` file as a callable.

    Args:
        path: the file, or its contents; or a folder that `program.save` wrote for a task, which is
            loaded as an `edgewise.tasks.TaskModel`, a Model that takes texts, pictures or sounds.
        threads: that loops are shared among; None: one per physical core.
        data_path: files (`.ptd`) with weights that are not in the program.
        max_memory: the most bytes that a method may plan for (see `Runtime.load_program`).
        cache_dir: a folder in which packed weights are kept, so that the next load, and other
            processes, map them (see `Runtime.load_program` and docs/runtime.md).
        method: what `model(...)` runs; None: "forward", or a program's only method.

    Raises:
        NotFoundError: no such method.
        As `Runtime.load_program` and `Program.load_method`.
    """
    if isinstance(path, (str, Path)) and (Path(path) / "edgewise.json").is_file():
        # Texts and pictures: a layer above, looked up when it is asked for.
        tasks = importlib.import_module("edgewise.tasks")
        opened: Model = tasks.open_task(
            Path(path),
            threads=threads,
            method=method,
            data_path=data_path,
            max_memory=max_memory,
            cache_dir=cache_dir,
        )
        return opened
    program = Runtime.get().load_program(
        path,
        threads=threads,
        data_path=data_path,
        max_memory=max_memory,
        cache_dir=cache_dir,
    )
    names = program.method_names
    if method is None:
        method = next(iter(names)) if len(names) == 1 else "forward"
        if method not in names:
            return Model(program, method)  # its other methods can be called by name
    elif method not in names:
        raise NotFoundError(f"[load] method must be one of {sorted(names)}; got '{method}'")
    model = Model(program, method)
    model._call(method)  # what is wrong with it shows now
    return model
