"""ExecuTorch's Core ML, Vulkan and OpenVINO, as `edgewise.registry` finds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from edgewise.registry import Backend

if TYPE_CHECKING:
    from edgewise.partition.spec import Partitioner


class _Executorch(Backend):
    """A backend of the installed ExecuTorch, whose runtime alone has the delegates."""

    in_executorch = True
    schemes = ()

    def __init__(
        self,
        name: str,
        title: str,
        delegate_id: str,
        partitioner: str,
        needs: Mapping[str, str],
        make: Callable[[Any], Any] = lambda kind: kind(),
        colours: tuple[str, str] = Backend.colours,
    ) -> None:
        """partitioner: its class, "module:name". needs: packages to import, and what pip calls
        them. make: calls the class."""
        self.name, self.title, self.delegate_id = name, title, delegate_id
        self.colours = colours
        self._class, self._needs, self._make = partitioner, needs, make

    def missing(self, target: str) -> str:
        absent = [pip for module, pip in self._needs.items() if find_spec(module) is None]
        if not absent:
            return ""
        return (
            f"ExecuTorch's backend for {self.title} is not installed; try pip install "
            f"{' '.join(absent)}"
        )

    def partitioner(self, target: str) -> Partitioner:
        problem = self.missing(target)
        if problem:
            raise ImportError(f"[{self.name}] {problem}")
        from edgewise.partition.executorch import adapted

        module, _, name = self._class.partition(":")
        made: Partitioner = adapted(self._make(getattr(import_module(module), name)))
        return made


def _on_cpu(partitioner: Any) -> Any:
    spec = import_module("executorch.exir.backend.compile_spec_schema").CompileSpec
    return partitioner([spec("device", b"CPU")])


BACKEND: tuple[Backend, ...] = (
    _Executorch(
        "coreml",
        "Core ML",
        "CoreMLBackend",
        "executorch.backends.apple.coreml.partition:CoreMLPartitioner",
        {"executorch": "executorch", "coremltools": "coremltools"},
        colours=("#fdeef3", "#b83280"),
    ),
    _Executorch(
        "vulkan",
        "Vulkan",
        "VulkanBackend",
        "executorch.backends.vulkan.partitioner.vulkan_partitioner:VulkanPartitioner",
        {"executorch": "executorch"},
        colours=("#fdeaea", "#a61e2e"),
    ),
    _Executorch(
        "openvino",
        "OpenVINO",
        "OpenvinoBackend",
        "executorch.backends.openvino.partitioner:OpenvinoPartitioner",
        {"executorch": "executorch", "openvino": "openvino", "nncf": "nncf"},
        _on_cpu,
        colours=("#ece8fb", "#5b3fb8"),
    ),
)
