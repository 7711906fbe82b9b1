"""Build the external function of a region and the call that takes its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from tvm import relax
from tvm.ir import Constant, GlobalVar
from tvm.relax.expr import _update_type
from tvm_ffi import structural_hash

from convoy.offload.names import stem
from convoy.relax.annotate import Composite
from convoy.relax.dataflow import Dataflow, dims, read_array
from convoy.relax.expected import note_sizes, variables_of
from convoy.relax.images import Place, bring_back, bring_to_front, image_places, reading_of

AXIS_ZERO = "convoy_axis_zero"
"""Attribute of an external function: how it reads axis 0, see ``patterns.readings``."""


@dataclass(frozen=True)
class Cut:
    """A region cut out of a block."""

    name: str
    function: relax.Function
    inputs: tuple[relax.Var, ...]
    outputs: tuple[relax.Var, ...]
    """Variables of the block that the region reads and defines."""

    places: Mapping[relax.Var, Place]
    """Those of them whose images are not along an axis 0 of their own; the function's are."""

    def call(self, function: GlobalVar) -> list[relax.Binding]:
        """The bindings that define the region's outputs by calling it."""
        before: list[relax.Binding] = []
        behind: list[relax.Binding] = []
        arguments: list[relax.Var] = []
        for x in self.inputs:
            moves = bring_to_front(x, self.places[x]) if x in self.places else []
            before += moves
            arguments.append(moves[-1].var if moves else x)
        made: list[relax.Var] = []
        for y in self.outputs:
            front = bring_to_front(y, self.places[y])[-1].var if y in self.places else y
            behind += bring_back(front, self.places[y], y) if y in self.places else []
            made.append(front)
        types = [v.ty for v in made]
        result = types[0] if len(types) == 1 else relax.TupleType(types)
        call = relax.Call(function, arguments, ret_ty=result)
        if len(types) == 1:
            return [*before, relax.VarBinding(made[0], call), *behind]
        results = relax.DataflowVar(f"{self.name}_results", result)
        return [
            *before,
            relax.VarBinding(results, call),
            *(relax.VarBinding(var, relax.TupleGetItem(results, i)) for i, var in enumerate(made)),
            *behind,
        ]


def cut_out(
    flow: Dataflow,
    composites: Sequence[Composite],
    outputs: Iterable[int],
    labels: frozenset[str],
    codegen: str,
) -> Cut:
    """The external function that computes ``composites``.

    Parameters
    ----------
    composites : Sequence[Composite]
        In running order.
    outputs : Iterable[int]
        Positions of the bindings whose variables are read outside.
    labels : frozenset[str]
        The ways in which all of the composites allow axis 0 to be read; ``flat`` if it is among them, or
        else that of the images which the fewest tensors have to be moved for, is noted on the function;
        ``open`` becomes ``flat``.
    codegen : str
        Whose the function is.
    """
    reading = reading_of(labels)
    made = {flow.bindings[c.positions[-1]].var for c in composites}
    reads = dict.fromkeys(v for c in composites for v in flow.reads_of(c.positions))
    inputs = [v for v in reads if v not in made]
    outer = [flow.bindings[i].var for i in outputs]
    places = {} if reading == "flat" else _find_places([*inputs, *outer], labels, flow)
    new = {}
    params: list[relax.Var] = []
    bindings: list[relax.Binding] = []
    for v in inputs:
        front = bring_to_front(v, places[v])[-1].var if v in places else v
        params.append(relax.Var(v.name, front.ty))
        new[v] = params[-1]
        if v in places:
            moved = bring_back(params[-1], places[v], relax.DataflowVar(v.name, v.ty))
            bindings += moved
            new[v] = moved[-1].var
    constants: list[Constant] = []
    for composite in composites:
        function = _composite_function(flow, composite, constants, codegen)
        local = relax.DataflowVar(f"{codegen}_{stem(composite.pattern)}", function.ty)
        arguments = [new[v] for v in flow.reads_of(composite.positions)]
        result = flow.bindings[composite.positions[-1]].var
        new[result] = relax.DataflowVar(result.name, result.ty)
        bindings.append(relax.VarBinding(local, function))
        bindings.append(relax.VarBinding(new[result], relax.Call(local, arguments, ret_ty=result.ty)))
    inner: list[relax.Var] = []
    for v in outer:
        moved = bring_to_front(new[v], places[v]) if v in places else []
        bindings += moved
        inner.append(moved[-1].var if moved else new[v])
    value = inner[0] if len(inner) == 1 else relax.Tuple(inner)
    function = _function(params, bindings, value, {"Codegen": codegen, AXIS_ZERO: reading})
    function = note_sizes(function, flow.least)
    name = f"{codegen}_{content_hash(function, constants)}"
    if variables_of(function):
        function = relax.utils.copy_with_new_vars(function)  # a length is known in one function only
    function = function.with_attr("global_symbol", name)
    return Cut(name, function, tuple(inputs), tuple(outer), places)


def _find_places(
    variables: Iterable[relax.Var], labels: Iterable[str], flow: Dataflow
) -> dict[relax.Var, Place]:
    """Where the images of these are by that reading by which the most have an axis 0 of their own."""
    read = {v: image_places(dims(v) or (), flow, flow.rows_of(v)) for v in variables}
    moved = [
        {v: places[label] for v, places in read.items() if not places[label].plain}
        for label in sorted(labels)
        if all(label in places for places in read.values())
    ]
    return min(moved, key=len, default={})


def content_hash(function: relax.Function, constants: Iterable[Constant]) -> str:
    """16 hexadecimal digits that differ for functions of different structure or constants.

    The constants' bytes are hashed here: the structural hash is meant for tables, not for names.
    """
    digest = blake2b(digest_size=8)
    structure = structural_hash(function, map_free_vars=True, skip_tensor_content=True)
    digest.update((structure & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little"))
    for constant in constants:
        digest.update(np.ascontiguousarray(read_array(constant)).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _composite_function(
    flow: Dataflow, composite: Composite, constants: list[Constant], codegen: str
) -> relax.Function:
    inputs = flow.reads_of(composite.positions)
    new: dict[relax.Var, relax.Expr] = {v: relax.Var(v.name, v.ty) for v in inputs}
    params = list(new.values())
    bindings = []

    def substitute(expr: relax.Expr) -> relax.Expr:
        """``expr`` in terms of the new variables, with named constants written out."""
        if flow.is_constant(expr):
            constants.append(flow.value(expr))
            return constants[-1]
        if isinstance(expr, relax.Var):
            return new.get(flow.root(expr), expr)
        if isinstance(expr, relax.Call):
            args = [substitute(arg) for arg in expr.args]
            return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span, ret_ty=expr.ty)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([substitute(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(substitute(expr.tuple_value), expr.index)
        return expr

    for i in composite.positions:
        binding = flow.bindings[i]
        value = substitute(binding.value)
        new[binding.var] = relax.DataflowVar(binding.var.name, binding.var.ty)
        bindings.append(relax.VarBinding(new[binding.var], value))
    result = new[flow.bindings[composite.positions[-1]].var]
    return _function(params, bindings, result, {"Composite": f"{codegen}.{stem(composite.pattern)}"})


def _function(
    params: Sequence[relax.Var],
    bindings: Sequence[relax.Binding],
    value: relax.Expr,
    attributes: Mapping[str, str],
) -> relax.Function:
    result = relax.Var("result", value.ty)
    block = relax.DataflowBlock([*bindings, relax.VarBinding(result, value)])
    body = relax.SeqExpr([block], result)
    _update_type(body, value.ty)
    return relax.Function(list(params), body, value.ty).with_attrs(dict(attributes))
