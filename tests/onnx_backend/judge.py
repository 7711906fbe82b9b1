"""Run one node test through one backend."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from typing import Any

from onnx.backend.test.runner import Runner

from convoy.offload import work
from convoy.options import Options
from convoy.relax.onnx_backend import ConvoyBackend
from convoy.toolchain import compiler
from onnx_backend.cases import Case
from onnx_backend.plain_tvm import PlainTvmBackend
from optimising import less
from relax.plain import do_not_optimise_what_is_left

LENGTH = 240
"""Length of a reason, in characters."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    passed: bool
    reason: str = ""
    """In one line, why it failed."""
    regions: int = 0
    """External functions that Convoy made of it."""
    seconds: float = field(default=0.0, compare=False)


def take_everything() -> None:
    """Make this process give no region back for being small, as all regions of node tests are.

    They are optimised less, and what is left to TVM not at all: what is asked here is what ops mean.
    """
    work.WORTH_BYTES = 0
    compiler.FLAGS = (*compiler.FLAGS, *less())
    do_not_optimise_what_is_left()


def judge_convoy(case: Case) -> Outcome:
    return _judge(case, ConvoyBackend, options=Options(threads=1))


def judge_plain_tvm(case: Case) -> Outcome:
    return _judge(case, PlainTvmBackend)


def _judge(case: Case, backend: Any, **options: Any) -> Outcome:
    start = time.perf_counter()
    regions = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared = backend.prepare(case.model, "CPU", **options)
            regions = len(prepared.report.regions) if prepared.report else 0
            for inputs, expected in case.data_sets:
                Runner.assert_similar_outputs(expected, prepared.run(inputs), case.rtol, case.atol)
    except Exception as error:  # whatever goes wrong is the outcome
        return Outcome(False, one_line(error), regions, time.perf_counter() - start)
    return Outcome(True, "", regions, time.perf_counter() - start)


def one_line(error: Exception) -> str:
    """``ModelError: import: …``: the type and the text, or the end of it where it is a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        lines = lines[-1:]
    text = f"{type(error).__name__}: {' '.join(lines)}"
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 1]}…"
