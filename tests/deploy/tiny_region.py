"""A hand-written region, compiled without planner and code generator."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relax

from convoy.graph.graph import OpenAxis
from convoy.graph.ops import Tensor

SOURCE = """
#include "convoy/region.h"
#include "convoy/runtime.h"

extern const float SYMBOL_weights[];

typedef struct call { const float *const *inputs; float *const *outputs; int64_t image; } call;

/* y = relu(x) * weight, in two steps with the arena between them; then the halves of x swap places
 * between threads, so that a missing barrier shows. */
static void run(cv_thread thread, void *arena, void *context) {
  const call *c = context;
  const float *x = c->inputs[0] + c->image * SIZE;
  float *y = c->outputs[0] + c->image * SIZE, *scratch = arena;
  for (int i = thread.id; i < SIZE; i += thread.count) scratch[i] = x[i] > 0 ? x[i] : 0;
  convoy_barrier(thread);
  for (int i = thread.count - 1 - thread.id; i < SIZE; i += thread.count) {
    y[i] = scratch[i] * SYMBOL_weights[i];
  }
}

int SYMBOL(const float *const *inputs, float *const *outputs, int64_t images) {
  for (int64_t image = 0; image < images; ++image) {
    call c = {inputs, outputs, image};
    const int status = convoy_launch(run, &c, ARENA, 0, 1);
    if (status) return status;
  }
  return 0;
}
"""


@dataclass(frozen=True)
class TinyRegion:
    """What ``backend.generate`` would return for ``relu(x) * weight``."""

    symbol: str
    weight: np.ndarray
    batch: int | None = 1
    open_axes: tuple[OpenAxis, ...] = ()
    arena_bytes: int | None = None
    padding_bytes: int = 0
    """Bytes of weights nobody reads."""

    @property
    def name(self) -> str:
        return self.symbol

    @property
    def sources(self) -> tuple[str, ...]:
        arena_bytes = self.arena_bytes or self.weight.nbytes
        text = SOURCE.replace("SYMBOL", self.symbol).replace("SIZE", str(self.weight.size))
        return (text.replace("ARENA", f"(size_t){arena_bytes}u"),)

    @property
    def weights(self) -> bytes:
        return self.weight.tobytes() + b"\xa5" * self.padding_bytes

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (Tensor("data", self.weight.shape),)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return (Tensor("scaled", self.weight.shape),)

    def expected(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0) * self.weight

    def input(self, seed: int = 0) -> np.ndarray:
        shape = (self.batch or 1, *self.weight.shape[1:])
        return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def make_region(
    symbol: str, seed: int = 1, shape: tuple[int, ...] = (1, 3, 8, 8), **changes: object
) -> TinyRegion:
    weight = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return replace(TinyRegion(symbol, weight), **changes)  # type: ignore[arg-type]


def module_calling(region: TinyRegion) -> tvm.IRModule:
    """A Relax module: main calls an external function named like the region, then negates."""
    batch = tvm.tirx.Var("n", "int64") if region.batch is None else region.batch
    shape = (batch, *region.weight.shape[1:])
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function(region.symbol, [x], attrs={"Codegen": "convoy", "global_symbol": region.symbol}):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))  # its contents are never looked at
    callee = builder.get().get_global_var(region.symbol)
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        result = builder.emit(relax.Call(callee, [x]))
        builder.emit_func_output(builder.emit(relax.op.negative(result)))
    return builder.finalize()
