"""Convoy behind ONNX's own backend interface, ``onnx.backend.base.Backend``.

>>> from convoy.relax.onnx_backend import ConvoyBackend
>>> ConvoyBackend.prepare(onnx.load("model.onnx")).run([image])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from numpy.typing import NDArray
from onnx import helper, shape_inference
from onnx.backend.base import Backend, BackendRep
from tvm import relax

from convoy.deploy.export import link
from convoy.errors import TargetError
from convoy.options import Options
from convoy.relax.compile import compile
from convoy.report.decision import Report

Array = NDArray[Any]


class Executable(BackendRep):  # type: ignore[misc]
    """An executable of TVM, called with NumPy arrays."""

    def __init__(self, executable: Any, report: Report | None = None) -> None:
        self.report = report
        """What the compilation decided; None if it was not Convoy's."""
        library = executable.jit(fcompile=link)
        self._main = relax.VirtualMachine(library, tvm.cpu())["main"]

    def run(self, inputs: Sequence[Array], **_: Any) -> list[Any]:
        """Compute the model's outputs, in its order; a sequence comes as a list.

        Parameters
        ----------
        inputs : Sequence[Array]
            One array for each input of the model, in its order, without its initializers.
        """
        # order="C" and not ascontiguousarray, which gives a scalar an axis
        result = self._main(*(tvm.runtime.tensor(np.asarray(array, order="C")) for array in inputs))
        arrays = _to_numpy(result)
        return arrays if isinstance(arrays, list) else [arrays]


class ConvoyBackend(Backend):  # type: ignore[misc]
    """``prepare`` compiles a model with Convoy; ``run_model`` and ``run_node`` also run it."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0].upper() == "CPU"

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", *, options: Options | None = None, **_: Any
    ) -> Executable:
        """Compile a model.

        Parameters
        ----------
        model : onnx.ModelProto
            With open dimensions only along the batch.
        device : str
            ``CPU``.
        options : Options | None
            As ``convoy.compile`` takes them.

        Raises
        ------
        TargetError
            For another device; else what ``convoy.compile`` raises.
        """
        if not cls.supports_device(device):
            raise TargetError("target", device, "expected the device CPU", "leave device out")
        report = Report()
        return Executable(compile(model, options=options, report=report), report)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[Array],
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Compute one node.

        Parameters
        ----------
        inputs : Sequence[Array]
            One array for each input the node names.
        outputs_info : Sequence[tuple[Any, tuple[int, ...]]] | None
            Unused: ONNX infers what the node makes.
        """
        return list(cls.prepare(model_of(node, inputs), device, **kwargs).run(inputs))


def model_of(node: onnx.NodeProto, inputs: Sequence[Array]) -> onnx.ModelProto:
    """A model of one node, for inputs of these shapes and types."""
    names = [name for name in node.input if name]
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs, strict=True)
    ]
    made = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    return shape_inference.infer_shapes(
        helper.make_model(helper.make_graph([node], "node", declared, made))
    )


def _to_numpy(result: Any) -> Any:
    """An array for a tensor, a list for a tuple."""
    return (
        result.numpy() if isinstance(result, tvm.runtime.Tensor) else [_to_numpy(part) for part in result]
    )
