"""Open sizes of inputs that every call has as a multiple of a number: 8k in place of h.

A network that halves a map three times and joins what it doubles again with what it had runs at multiples
of 8 alone.  Said of k, all its sizes are products, and equal ones are seen to be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax, tirx
from tvm.sym import Analyzer

from convoy.graph.sizes import as_symbol, bind, symbols
from convoy.relax.importer.sizes import known_numbers
from convoy.relax.importer.sizes.algebra import replace
from convoy.relax.sizes import PARTS, Dim, Lengths

MULTIPLES = frozenset(PARTS.values())
"""What a size may be a multiple of: no network halves a map more often than eight times."""
NAMES = {times: name for name, times in PARTS.items()}
"""What the symbols are called."""
TRIED = 4 * max(MULTIPLES)
"""Sizes up to this are tried."""


class Multiple(Exception):
    """An open size of an input that no call may have otherwise than as a multiple of this number."""

    def __init__(self, symbol: str, times: int) -> None:
        super().__init__(symbol)
        self.symbol = symbol
        self.times = times


def find_multiple(a: Dim, b: Dim) -> tuple[tirx.Var, int] | None:
    """A symbol and a number of which it is a multiple wherever two sizes are equal, and nowhere else."""
    lengths = Lengths()
    left, right = lengths.size(a), lengths.size(b)
    found = {*symbols(left), *symbols(right)}
    if left is None or right is None or len(found) != 1:
        return None
    (symbol,) = found
    equal = [n for n in range(1, TRIED + 1) if bind(left, {symbol: n}) == bind(right, {symbol: n})]
    if not equal or equal[0] == 1 or equal != list(range(equal[0], TRIED + 1, equal[0])):
        return None
    variable = next(v for v, size in lengths.variables.items() if as_symbol(size) is symbol)
    return variable, equal[0]


class Divided:
    """The symbols that stand for open sizes of the inputs, each of which is a multiple of one."""

    def __init__(self, bb: Any, times: Mapping[str, int]) -> None:
        self.bb = bb
        self.times = times
        self.whole: dict[tirx.Var, tirx.Var] = {}
        """The size of an input by the symbol it is a multiple of."""
        self.parts: dict[str, tirx.Var] = {}

    @property
    def given(self) -> dict[tirx.Var, tuple[str, int]]:
        """The symbols: the size of an input, and how often it is the symbol."""
        return {part: (str(whole.name), self.times[str(whole.name)]) for part, whole in self.whole.items()}

    def divide(self, x: relax.Var) -> relax.Expr:
        """An input whose sizes are products, which a call proves or refuses."""
        if not isinstance(x.ty, relax.TensorType) or x.ty.shape is None:
            return x
        sizes = list(x.ty.shape.values)
        made = [self._divided(d) for d in sizes]
        if all(a is b for a, b in zip(made, sizes, strict=True)):
            return x
        return self.bb.match_cast(x, relax.TensorType(made, x.ty.dtype))

    def _divided(self, size: tirx.Expr) -> tirx.Expr:
        """A size with products in the places of the symbols in it."""
        symbols = [v for v in tirx.analysis.undefined_vars(size) if str(v.name) in self.times]
        for symbol in symbols:
            size = replace(size, symbol, self._product(symbol))
        return self.bb.algebra.simplify(size) if symbols else size

    def _product(self, size: tirx.Var) -> tirx.Expr:
        name = str(size.name)
        if name not in self.parts:
            part = tirx.Var(NAMES[self.times[name]], "int64")
            self.bb.algebra.bind([part])
            # of an expression TVM would write the expression in place of the symbol
            found = known_numbers([tirx.floordiv(size, self.times[name])], (1,), "int64")
            read = self.bb.emit(relax.op.tensor_to_shape(found.compute(self.bb)))
            self.bb.match_cast(read, relax.ShapeType([part]))
            self.parts[name], self.whole[part] = part, size
        return self.parts[name] * tirx.IntImm("int64", self.times[name])

    def restore(self, x: Any) -> Any:
        """An output in the sizes of the inputs."""
        shape = getattr(getattr(x, "ty", None), "shape", None)
        if not self.whole or not isinstance(shape, relax.ShapeExpr):
            return x
        analyzer = Analyzer()
        for part, whole in self.whole.items():
            analyzer.bind(part, tirx.floordiv(whole, self.times[str(whole.name)]))
        return self.bb.match_cast(
            x, relax.TensorType(list(map(analyzer.simplify, shape.values)), x.ty.dtype)
        )
