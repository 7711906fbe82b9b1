"""Compile a model to be profiled: its regions tell when each step begins and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from tvm.ir.transform import PassContext

from convoy.deploy.traced import TracedRunner
from convoy.offload.settings import Progress, traced
from convoy.options import Options
from convoy.relax.compile import compile
from convoy.relax.network import NamedCalls
from convoy.report.decision import Report

if TYPE_CHECKING:
    import onnx

    from convoy.onnx_file import Shapes


def compile_traced(
    model: str | Path | onnx.ModelProto,
    inputs: Sequence[NDArray[Any]],
    shapes: Shapes,
    options: Options,
    report: Report,
    progress: Progress | None,
) -> tuple[TracedRunner, Mapping[str, Sequence[str]]]:
    """The model, ready to be run on ``inputs``, and what the calls of each of TVM's functions make.

    Parameters
    ----------
    model, shapes, options, report, progress
        As of ``compile``.

    Raises
    ------
    ConvoyError
        As ``compile``.
    """
    context, calls = PassContext.current(), NamedCalls()
    with (
        traced.using(True),
        PassContext(opt_level=context.opt_level, config=dict(context.config), instruments=[calls]),
    ):
        executable = compile(model, shapes=shapes, options=options, report=report, progress=progress)
    return TracedRunner(executable, inputs), calls.names
