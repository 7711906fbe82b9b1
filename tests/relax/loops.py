"""What threads that share a loop of TVM's may write."""

from __future__ import annotations

import os
from collections.abc import Iterator

import tvm
from tvm import tirx

THREADS = 3
"""More than TVM has by itself where there are two cores: one, which races with nobody."""


def share_loops() -> None:
    """Let loops that TVM runs for this thread be shared, whatever the machine."""
    cpus = os.sched_getaffinity(0)
    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(-3, THREADS, [str(cpu) for cpu in sorted(cpus)])
    os.sched_setaffinity(0, cpus)  # TVM pins the caller


def find_shared_scratch(module: tvm.IRModule) -> list[str]:
    """Names of buffers that all threads of a loop write, though each needs its own."""
    found: list[str] = []
    for _, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            scratch = _allocated(function.body)
            for part in _parts(function.body):
                if isinstance(part, tirx.For) and part.kind == tirx.ForKind.PARALLEL:
                    own = _allocated(part.body)
                    others = [buffer for buffer in scratch if not _is_in(buffer, own)]
                    stores = [inner for inner in _parts(part.body) if isinstance(inner, tirx.BufferStore)]
                    found += [store.buffer.name for store in stores if _is_in(store.buffer, others)]
    return found


def _allocated(stmt: tirx.Stmt) -> list[tirx.Buffer]:
    parts = list(_parts(stmt))
    of_blocks = [buffer for part in parts for buffer in getattr(part, "alloc_buffers", ())]
    return [part.buffer for part in parts if isinstance(part, tirx.AllocBuffer)] + of_blocks


def _is_in(buffer: tirx.Buffer, those: list[tirx.Buffer]) -> bool:
    return any(buffer.same_as(other) for other in those)


def _parts(stmt: tirx.Stmt) -> Iterator[tirx.Stmt]:
    """A statement and all within it, outer ones first."""
    yield stmt
    inner = [getattr(stmt, name, None) for name in ("block", "init", "body", "then_case", "else_case")]
    for part in [*inner, *getattr(stmt, "seq", ())]:
        if part is not None:
            yield from _parts(part)


def find_loops_that_wake_threads(function: tirx.PrimFunc) -> list[str]:
    """Variables of loops that wake all threads in each turn."""
    return [
        outer.loop_var.name
        for outer in _loops(function.body)
        if outer.kind != tirx.ForKind.PARALLEL and int(getattr(outer.extent, "value", 2)) > 1
        if any(inner.kind == tirx.ForKind.PARALLEL for inner in _loops(outer.body))
    ]


def _loops(stmt: tirx.Stmt) -> list[tirx.For]:
    return [part for part in _parts(stmt) if isinstance(part, tirx.For)]
