"""Put back the ops that a frontend took apart.

One forward walk: at each call the rewrites listed for its op are tried on what its arguments
were bound to.  A rewrite reads backwards from its root and replaces only the root, so a value
that something else uses too stays; what nothing uses any more is dropped at the end.  What a
rewrite makes is the input of those that follow, so one walk is enough and the pass is linear.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from convoy.ops.table import ROWS
from convoy.relax.importer.idioms import (
    activations,
    constants,
    linear,
    loops,
    selections,
    shapes,
    updates,
    variadic,
)
from convoy.relax.importer.idioms.definitions import Definitions, Rewrite, op_name
from convoy.relax.no_touch import is_marked

REWRITES: Sequence[tuple[str, Rewrite]] = (
    *((op, constants.fold_constant) for op in constants.EVALUATORS),
    ("call_tir", loops.raise_bound),
    ("call_tir", loops.raise_pad),
    ("shape_of", shapes.settle_shape_of),
    ("shape_to_tensor", shapes.settle_shape_tensor),
    ("tensor_to_shape", shapes.settle_tensor_shape),
    ("dynamic_strided_slice", shapes.settle_slice),
    ("reshape", shapes.settle_reshape),
    ("reshape", shapes.drop_identity_reshape),
    ("broadcast_to", shapes.drop_identity_broadcast),
    *((op, shapes.drop_broadcast_beside) for op in ("add", "subtract", "multiply", "divide")),
    *((row.relax, shapes.lift_operand) for row in ROWS if row.binary and row.relax),
    ("where", shapes.settle_where),
    ("permute_dims", shapes.drop_identity_permute),
    ("astype", shapes.drop_identity_cast),
    ("maximum", activations.raise_relu),
    ("minimum", activations.raise_clip),
    ("maximum", activations.raise_clip),
    ("clip", activations.raise_hardsigmoid),
    ("clip", activations.raise_relu_from_clip),
    ("divide", activations.raise_hardsigmoid),
    ("multiply", activations.raise_hardsigmoid),
    ("divide", activations.raise_activation),
    ("multiply", activations.raise_activation),
    ("sum", variadic.raise_sum),
    ("max", variadic.raise_max),
    ("min", variadic.raise_min),
    ("mean", variadic.raise_mean),
    ("reshape", selections.permute_in_place),
    ("strided_slice", selections.slice_before_permute),
    ("take", selections.take_before_permute),
    ("squeeze", selections.squeeze_before_permute),
    ("matmul", linear.move_scale_to_weight),
    ("matmul", linear.raise_lookup),
    ("scatter_nd", updates.raise_box),
)
"""Tried in this order; the first that fires wins, and its result is looked at again."""


def raise_idioms() -> tvm.transform.Pass:
    """The pass that raises idioms in every Relax function of a module.

    Afterwards bounds are ``clip`` or ``nn.relu``, sums of many tensors are ``add``, SiLU and GELU
    are one op, HardSigmoid is ``clip(x·a + b, 0, 1)``, arithmetic on constants and static shapes is
    done, and dropout is gone.  Open dimensions stay open.
    """
    return tvm.transform.module_pass(_raise, opt_level=0, name="ConvoyRaiseIdioms")


def _raise(module: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
    raiser = _Raiser(module)
    for name, function in module.functions_items():
        if isinstance(function, relax.Function) and not is_marked(function):
            raiser.builder_.update_func(name, raiser.visit_expr(function))
    # Constants bound to a variable move to their uses; what became unused goes.
    tidy = tvm.transform.Sequential(
        [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    )
    return tidy(raiser.builder_.get())


@mutator
class _Raiser(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.defined = Definitions(module, self.lookup_binding)
        self.table: dict[str, list[Rewrite]] = {}
        for op, rewrite in REWRITES:
            self.table.setdefault(op, []).append(rewrite)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        found: relax.Expr = self.visit_expr_post_order(call)
        while (better := self.rewrite(found)) is not None:
            found = self.builder_.normalize(better)
        return found

    def rewrite(self, call: relax.Expr) -> relax.Expr | None:
        for rewrite in self.table.get(op_name(call), ()):
            better = rewrite(call, self.defined)
            if better is not None:
                return better
        return None

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        found: relax.Expr = self.visit_expr_post_order(item)
        better = shapes.drop_dropout(found, self.defined)
        if better is None and (cut := selections.item_before_permute(found, self.defined)) is not None:
            better = self.builder_.normalize(cut)
        return found if better is None else better
