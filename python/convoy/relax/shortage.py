"""Sizes that open ones make too small: a call where one is ends in a line that says which, and of what.

TVM would ask for memory of a size below 0, or of two such sizes give a tensor that has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.ir import Range
from tvm.sym import Analyzer

from convoy.deploy.tensors import TOO_SMALL
from convoy.graph.sizes import substitute, symbols
from convoy.offload.reasons import show_length
from convoy.relax.dataflow import name_of, node_name, number, op_name
from convoy.relax.sizes import FOUND, Lengths
from convoy.text import line

_WINDOWS = tuple(f"nn.{op}{n}d" for op in ("conv", "max_pool", "avg_pool") for n in (1, 2, 3))
"""How the names of ops begin whose result has a pixel at least."""
_COMPUTED = "a size it computes"
"""What stands for a symbol that a run finds."""
_FARTHEST = 1 << 20
"""What an open size is said to need, at most."""


@dataclass(frozen=True)
class Shortage:
    """A size of what an op gives, that may be smaller than ``least``."""

    size: Any
    least: int
    of: str = ""
    """What it is of, in words; or nothing."""

    @property
    def holds(self) -> Any:
        """The condition that it is not."""
        return divided_by_one_at_least(self.size) >= tirx.IntImm("int64", self.least)

    @property
    def words(self) -> str:
        """What a call is told where it is."""
        of = f", {line(self.of)}," if self.of else ""
        return f"{TOO_SMALL}{_shown(self.size)}{of} is less than {self.least}; {self._remedy}"

    @property
    def _remedy(self) -> str:
        """What to give, where one open size of the inputs says it."""
        variables = tirx.analysis.undefined_vars(self.size)
        given = variables[0] if len(variables) == 1 and str(variables[0].name) not in FOUND else None
        wanted = None if given is None else _least_of(self.size, self.least)
        return "give larger inputs" if wanted is None else f"let {_shown(given)} be at least {wanted}"


def divided_by_one_at_least(size: Any) -> Any:
    """The same size where no open divisor in it is below 1, which a later check ends the call for.

    Computed before that, a division by 0 would end the process.
    """
    if not (hasattr(size, "a") and hasattr(size, "b")):
        return size
    a, b = map(divided_by_one_at_least, (size.a, size.b))
    if isinstance(size, _DIVISIONS) and number(b) is None:
        b = tirx.Max(b, tirx.IntImm("int64", 1))
    return type(size)(a, b)


_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)


def _shown(size: Any) -> str:
    found = "|".join(FOUND)
    return line(re.sub(rf"\b({found})\b", _COMPUTED, show_length(size)).replace("T.", ""))


def shortages(binding: relax.Binding, known: Mapping[Any, int]) -> Iterator[Shortage]:
    """Those of what a call gives, where these variables are known to be at least so much."""
    if isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.Call):
        pixels = axes_of_pixels(binding.value)
        for axis, size in _open_sizes(binding.var.ty):
            least = int(axis in pixels)
            if may_be_less(size, 0, 0, known) or (least and may_be_less(size, 1, 1, known)):
                yield Shortage(size, least, f"axis {axis} of {_name(binding)}")


def _name(binding: relax.Binding) -> str:
    """Op and node; of loops that an importer wrote for a node, the node."""
    made_of_loops = op_name(binding.value).startswith("call_")
    return node_name(binding) if made_of_loops else name_of(binding, binding.value)


def axes_of_pixels(call: relax.Call) -> set[int]:
    """The axes of what a call gives along which there is a window at least."""
    if not op_name(call).startswith(_WINDOWS):
        return set()
    layouts = (str(getattr(call.attrs, n, "")) for n in ("out_layout", "data_layout", "layout"))
    return {axis for axis, letter in enumerate(next(filter(None, layouts), "")) if letter in "DHW"}


def _open_sizes(type_: Any) -> Iterator[tuple[int, Any]]:
    """The axes of a tensor, or of those of a tuple, that have open sizes."""
    for part in type_.fields if isinstance(type_, relax.TupleType) else ():
        yield from _open_sizes(part)
    sizes = getattr(type_.shape, "values", None) if isinstance(type_, relax.TensorType) else None
    yield from ((axis, size) for axis, size in enumerate(sizes or ()) if number(size) is None)


def may_be_less(size: Any, least: int, symbols_from: int, known: Mapping[Any, int]) -> bool:
    """Is a size smaller for some open ones that are not?  Those that a run finds may be 0."""

    def low(symbol: tirx.Var) -> int:
        return known.get(symbol, 0 if str(symbol.name) in FOUND else symbols_from)

    if _grows(size, least, low):
        return False
    analyzer = Analyzer()
    for symbol in tirx.analysis.undefined_vars(size):
        analyzer.bind(symbol, Range.from_min_extent(low(symbol), tirx.IntImm("int64", 1 << 40)))
    return not analyzer.can_prove(size >= least)


def _grows(size: Any, least: int, low: Callable[[tirx.Var], int]) -> bool:
    """Is it seen without arithmetic, as of nearly all sizes, that one is as large?"""
    if isinstance(size, tirx.IntImm):
        return int(size.value) >= least
    if isinstance(size, tirx.Var):
        return low(size) >= least
    keeping = (tirx.Add, tirx.Mul, tirx.Min, *(() if least else (tirx.FloorDiv, tirx.FloorMod)))
    if isinstance(size, keeping):
        return _grows(size.a, least, low) and _grows(size.b, least, low)
    either = isinstance(size, tirx.Max)
    return either and (_grows(size.a, least, low) or _grows(size.b, least, low))


def _least_of(size: Any, least: int) -> int | None:
    """From which value of its only symbol on a size that grows with it is large enough."""
    known = Lengths().size(size)
    if known is None or len(found := symbols(known)) != 1:
        return None
    (symbol,) = found

    def fits(value: int) -> bool:
        return int(substitute(known, symbol, value)) >= least

    low, high = 0, _FARTHEST
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    grows = low < _FARTHEST and fits(low) and not (low and fits(low - 1))
    return low if grows and all(fits(low + more) for more in (1, 2, 3, 5, 8, low)) else None
