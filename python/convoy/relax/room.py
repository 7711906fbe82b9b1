"""Tensors of more elements than memory has place for, or of sizes below 0: a call that asks for one ends.

TVM multiplies the sizes of a tensor, and so do regions, without a look at overflow: of 2^32 by 2^32 floats
the bytes are counted as 0, and what is written lies behind them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Any

from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.ir.transform import Pass, PassContext, module_pass
from tvm.relax.expr import _update_type
from tvm_ffi import structural_equal

from convoy.deploy.tensors import NO_ROOM
from convoy.relax.checks import assert_all
from convoy.relax.dataflow import number
from convoy.relax.expected import expected_sizes, least_variables
from convoy.relax.no_touch import is_open
from convoy.relax.shortage import Shortage, divided_by_one_at_least, shortages

LARGEST = 48
"""Elements of a tensor, at most, as a power of 2: behind it lies room for their bytes, and for a sum of
many tensors, in 63 bits."""
_SMALL = 8
"""What is added to a size, at most, to be counted as so many times the size."""
_TERMS = 16
"""Products that a tensor is looked at as, at most; of more, sums count as they are."""
_MOST = 62
"""What sizes multiply to, at most, that are divided behind, as a power of 2: it is a number of 63 bits."""
_GIVEN = 18
"""So many times as large as a tensor of the call may be one of the same sizes, as a power of 2."""


def expect_room() -> Pass:
    """Pass that has a call end where its sizes, multiplied, are more than ``2 ** LARGEST`` elements.

    And where one that is made of them is below 0.

    What is looked at are the tensors of all ops, and of functions no codegen has taken yet.
    """

    def run(module: IRModule, _: PassContext) -> IRModule:
        builder = relax.BlockBuilder(module)
        for var, function in module.functions_items():
            if is_open(function):
                builder.update_func(var, _guard_function(function, _Scope(builder)))
        return builder.get()

    return module_pass(run, opt_level=0, name="convoy.expect_room")


@dataclass(frozen=True)
class _Product:
    """``2 ** scale`` by the factors, of which one of 0 counts as 1."""

    scale: float
    factors: Counter[_Factor]

    def covers(self, other: _Product) -> bool:
        """Is the other certainly no larger?"""
        return self.scale >= other.scale and self.factors >= other.factors

    def times(self, scale: float) -> _Product:
        """So much larger, as a power of 2."""
        return _Product(self.scale + scale, self.factors)

    def __mul__(self, other: _Product) -> _Product:
        return _Product(self.scale + other.scale, self.factors + other.factors)


class _Factor:
    """A size that is open, as a key."""

    def __init__(self, size: Any) -> None:
        self.size = size
        self._hash = hash(str(size))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Factor) and bool(structural_equal(self.size, other.size))


def _bound(size: Any) -> list[_Product]:
    """Products of which the largest is at least a size, whatever the open ones in it are.

    No sum is among their factors: one of many open sizes may wrap around.
    """
    known = number(size)
    if known is not None:
        return [_Product(log2(max(abs(int(known)), 1)), Counter())]
    if isinstance(size, tirx.Mul):
        return [a * b for a in _bound(size.a) for b in _bound(size.b)]
    if isinstance(size, tirx.FloorDiv | tirx.Div) and (number(size.b) or 0) > 0:
        return [a.times(-log2(number(size.b) or 1)) for a in _bound(size.a)]
    if isinstance(size, tirx.Add | tirx.Sub):
        a, b, constant = _bound(size.a), _bound(size.b), number(size.b)
        if constant is not None and (constant >= 0) == isinstance(size, tirx.Sub):
            return a
        if constant is not None and abs(constant) <= _SMALL:
            return [term.times(log2(1 + abs(constant))) for term in a]
        return [term.times(1) for term in (*a, *b)]
    if isinstance(size, tirx.Max):
        return _bound(size.a) + _bound(size.b)
    if isinstance(size, tirx.Select):
        return _bound(size.true_value) + _bound(size.false_value)
    return [_Product(0.0, Counter((_Factor(size),)))]


def _elements(sizes: Sequence[Any]) -> list[_Product]:
    """Products of which the largest is at least how many elements a tensor has."""
    products = [_Product(0.0, Counter())]
    for size in sizes:
        bound = _bound(size)
        if len(products) * len(bound) > _TERMS:
            bound = [_Product(0.0, Counter((_Factor(size),)))]
        products = [product * term for product in products for term in bound]
    return products


def _tensors(type_: Any) -> Iterator[_Product]:
    """Those of a type that have open sizes."""
    for field in type_.fields if isinstance(type_, relax.TupleType) else ():
        yield from _tensors(field)
    products = _elements(_sizes(type_) if isinstance(type_, relax.TensorType) else [])
    yield from (product for product in products if product.factors)


def _sizes(type_: Any) -> Sequence[Any]:
    """The sizes that the type of a tensor or a shape says, or of a tuple of them."""
    if isinstance(type_, relax.TupleType):
        return [size for field in type_.fields for size in _sizes(field)]
    says = type_.shape if isinstance(type_, relax.TensorType) else type_
    return getattr(says, "values", None) or ()


def _symbols(sizes: Iterable[Any]) -> set[Any]:
    return {symbol for size in sizes for symbol in tirx.analysis.undefined_vars(size)}


@dataclass(frozen=True)
class _Scope:
    """What is known where a body begins."""

    builder: relax.BlockBuilder
    symbols: frozenset[Any] = frozenset()
    held: tuple[_Product, ...] = ()
    """Products that memory has place for."""
    sufficing: frozenset[tuple[_Factor, int]] = frozenset()
    """Sizes that are large enough, and for what."""

    def checking(self, due: _Due) -> _Scope:
        return self.holding(due.products).expecting((_Factor(s.size), s.least) for s in due.shortages)

    def expecting(self, sufficing: Iterable[tuple[_Factor, int]]) -> _Scope:
        return replace(self, sufficing=self.sufficing.union(sufficing))

    @property
    def least(self) -> Mapping[Any, int]:
        """What open sizes are at least where those that suffice do."""
        return least_variables((factor.size, least) for factor, least in self.sufficing)

    def holding(self, products: Iterable[_Product]) -> _Scope:
        return replace(self, held=(*self.held, *products))

    def of(self, function: relax.Function) -> _Scope:
        """The scope of a function's body: what it is given is there."""
        given = [p for param in function.params for p in _tensors(param.ty)]
        symbols = _symbols(size for param in function.params for size in _sizes(param.ty))
        return replace(self, symbols=self.symbols | symbols).holding(map(_as_given, given))


def _as_given(product: _Product) -> _Product:
    return product.times(_GIVEN)


def _guard_function(function: relax.Function, scope: _Scope) -> relax.Function:
    body = _guard(function.body, scope.of(function))
    if body.same_as(function.body):
        return function
    return relax.Function(
        function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


def _guard(body: Any, scope: _Scope, *, branch: bool = False) -> Any:
    """A body with its checks as soon as the sizes are known: apart from what is computed.

    In a branch there are those only that begin it: of what stands behind ops there, TVM's FuseOps wants
    every variable read (0.27).
    """
    if not isinstance(body, relax.SeqExpr):
        return body
    bindings = [binding for block in body.blocks for binding in block.bindings]
    expected = expected_sizes(bindings, scope.builder.get())
    scope = scope.expecting((_Factor(size), least) for size, least in expected)
    due = _due(bindings, scope)
    due = {at: checks for at, checks in due.items() if at < 0 or not branch}
    place, blocks = -1, []
    if first := due.get(-1):
        blocks.append(_checks(first, scope.builder))
        scope = scope.checking(first)
    for block in body.blocks:
        written: list[relax.Binding] = []
        for binding in block.bindings:
            place += 1
            written.append(_guard_inside(binding, scope))
            checks = due.get(place, _Due())
            scope = scope.holding(_found(binding)).checking(checks)
            if checks and isinstance(block, relax.DataflowBlock):
                written += list(_checks(checks, scope.builder, relax.DataflowVar).bindings)
            elif checks:
                blocks += [type(block)(written, block.span), _checks(checks, scope.builder)]
                written = []
        same = len(written) == len(block.bindings) and all(map(_is, written, block.bindings))
        blocks.append(block if same else type(block)(written, block.span))
    if len(blocks) == len(body.blocks) and all(map(_is, blocks, body.blocks)):
        return body
    guarded = relax.SeqExpr(blocks, body.body, body.span)
    _update_type(guarded, body.ty)
    return guarded


@dataclass(frozen=True)
class _Due:
    """What is to be checked at one place."""

    products: tuple[_Product, ...] = ()
    shortages: tuple[Shortage, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.products or self.shortages)

    def __add__(self, other: _Due) -> _Due:
        return _Due(self.products + other.products, self.shortages + other.shortages)


def _due(bindings: Sequence[relax.Binding], scope: _Scope) -> dict[int, _Due]:
    """What to check after each binding, by its place: -1 is before all."""
    first: dict[Any, int] = {}
    for place, binding in enumerate(bindings):
        if isinstance(binding, relax.MatchCast):
            for size in _sizes(binding.ty):
                if isinstance(size, tirx.Var) and size not in scope.symbols:
                    first.setdefault(size, place)
    found = [(place, p) for place, binding in enumerate(bindings) for p in _found(binding)]
    wanted: list[tuple[int, _Product]] = []
    for product in (p for b in bindings for p in _made(b)):
        known = max((first.get(s, -1) for s in _symbols(f.size for f in product.factors)), default=-1)
        before = [*scope.held, *(p for place, p in (*found, *wanted) if place <= known)]
        if not any(p.covers(product) for p in before):
            wanted = [(at, p) for at, p in wanted if at < known or not product.covers(p)]
            wanted.append((known, product))
    due: dict[int, _Due] = {}
    for place, product in wanted:
        due[place] = due.get(place, _Due()) + _Due((product,))
    short, least = set(scope.sufficing), scope.least
    for shortage in (shortage for binding in bindings for shortage in shortages(binding, least)):
        size = _Factor(shortage.size)
        if short.isdisjoint({(size, shortage.least), (size, 1)}):
            place = max((first.get(s, -1) for s in _symbols([shortage.size])), default=-1)
            due[place] = due.get(place, _Due()) + _Due((), (shortage,))
            short.add((size, shortage.least))
    return due


def _guard_inside(binding: relax.Binding, scope: _Scope) -> relax.Binding:
    """A binding of a branch, or of a function."""
    value = new = binding.value
    if is_open(value):
        new = _guard_function(value, scope)
    elif isinstance(value, relax.If):
        branches = [_guard(body, scope, branch=True) for body in (value.true_branch, value.false_branch)]
        if not all(map(_is, branches, (value.true_branch, value.false_branch))):
            new = relax.If(value.cond, *branches, value.span)
            _update_type(new, value.ty)
    return binding if new.same_as(value) else relax.VarBinding(binding.var, new, binding.span)


def _is(a: Any, b: Any) -> bool:
    return bool(a.same_as(b))


def _made(binding: relax.Binding) -> Iterator[_Product]:
    """The tensors that a call makes."""
    if isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.Call):
        yield from _tensors(binding.var.ty)


def _found(binding: relax.Binding) -> Iterator[_Product]:
    """A tensor that has its sizes of its data: it is there, as what a call gives is."""
    if isinstance(binding, relax.MatchCast) and getattr(binding.value.ty, "shape", binding) is None:
        yield from map(_as_given, _tensors(binding.ty))


def _checks(
    due: _Due, builder: relax.BlockBuilder, kind: type[relax.Var] = relax.Var
) -> relax.BindingBlock:
    sizes = [_excess(product) for product in due.products]
    room = kind("room", relax.ShapeType(sizes))
    none = relax.ShapeType([0] * len(sizes))
    bindings = [
        relax.VarBinding(room, relax.ShapeExpr(sizes)),
        relax.MatchCast(kind("in_room", none), room, none),
    ]
    return relax.BindingBlock([*_asserts(due.shortages, builder, kind), *(bindings if sizes else ())])


def _asserts(
    shortages: Sequence[Shortage], builder: relax.BlockBuilder, kind: type[relax.Var]
) -> Iterator[relax.Binding]:
    if not shortages:
        return
    call = builder.normalize(assert_all(builder, [(s.holds, s.words) for s in shortages]))
    asserted = kind("asserted", call.ty)
    read = builder.normalize(relax.op.tensor_to_shape(asserted))
    shape, none = kind("none", read.ty), relax.ShapeType([0])
    yield relax.VarBinding(asserted, call)
    yield relax.VarBinding(shape, read)
    yield relax.MatchCast(kind("large_enough", none), shape, none)


def _excess(product: _Product) -> Any:
    """0 if a call has room for so many elements, else ``NO_ROOM``; divided, as a product wraps around."""
    power = min(max(LARGEST - product.scale, 0.0), _MOST)
    room: Any = tirx.IntImm("int64", int(2**power))
    fits = []
    for factor in product.factors.elements():
        given = divided_by_one_at_least(factor.size)
        size = tirx.max(given, tirx.IntImm("int64", 1))
        fits += [size <= room] if isinstance(given, tirx.Var) else [given >= 0, size <= room]
        room = tirx.truncdiv(room, size)
    return tirx.Select(tirx.all(*fits), tirx.IntImm("int64", 0), tirx.IntImm("int64", NO_ROOM))
