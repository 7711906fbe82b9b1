"""Which outputs of a built module lie in memory that nothing else has: read off what allocates it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from tvm import relax
from tvm.ir import GlobalVar, IRModule, Op

_ALLOCATE, _ALLOCATE_STORAGE = "relax.vm.alloc_tensor", "relax.vm.alloc_storage"
_VIEW = "vm.builtin.reshape"


def own_outputs(module: IRModule) -> tuple[int, ...]:
    """Places, among the flattened outputs of ``main``, of those that the caller may write to.

    Such an output is a tensor that a call allocates for it alone, or a view of one: no input, no constant,
    and no part of another output.

    Parameters
    ----------
    module : IRModule
        After TVM's own passes: its calls allocate what they write.
    """
    functions = {var.name_hint: function for var, function in module.functions_items()}
    return tuple(sorted(_Owned(functions).places("main")))


Memory = tuple[relax.Var, int]
"""What a call allocates, or makes for its output of this place: its variable."""
Memories = frozenset[Memory | None]
"""What a value may lie in; with None, if that may be somebody else's, too."""
Found = Memories | list[Any]
"""The same for each field of a tuple."""
_UNKNOWN: Found = frozenset([None])


class _Owned:
    """What the outputs of a module's functions lie in, and which are their callers' own."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.functions = functions
        self.known: dict[str, tuple[Found, frozenset[int]]] = {}

    def places(self, name: str) -> frozenset[int]:
        """Those of a function.  What it calls is read before it; of a call of itself nothing is known."""
        waiting: list[tuple[str, _Reader | None]] = [(name, None)]
        while waiting:  # a stack: a Loop has more levels than Python calls
            one, reader = waiting.pop()
            if reader is not None:
                self.known[one] = _own(reader.read())
            elif one not in self.known:
                self.known[one] = _UNKNOWN, frozenset()
                function = self.functions.get(one)
                if isinstance(function, relax.Function):
                    reader = _Reader(self, function.body)
                    waiting += [(one, reader), *((callee, None) for callee in reader.callees())]
        return self.known[name][1]


def _own(found: Found) -> tuple[Found, frozenset[int]]:
    leaves = _flatten(found)
    times = Counter(memory for memories in leaves for memory in memories)
    own = (i for i, m in enumerate(leaves) if None not in m and all(times[one] == 1 for one in m))
    return found, frozenset(own)


def _flatten(found: Found) -> list[Memories]:
    return [one for field in found for one in _flatten(field)] if isinstance(found, list) else [found]


def _either(a: Found, b: Found) -> Found:
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a | b
    fields = len(a if isinstance(a, list) else b)  # unknown: so are its fields
    return [_either(x, y) for x, y in zip(_fields(a, fields), _fields(b, fields), strict=True)]


def _fields(found: Found, count: int) -> list[Any]:
    return found if isinstance(found, list) else [found] * count


class _Reader:
    """What the values in a function's body lie in."""

    def __init__(self, owned: _Owned, body: relax.Expr) -> None:
        self.owned, self.body = owned, body
        self.values: dict[relax.Var, relax.Expr] = {}
        self.found: dict[relax.Var, Found] = {}
        """What was asked for already."""
        self.tensors: Counter[relax.Expr] = Counter()
        """How many tensors are in each storage: TVM's plan of memory shares storages."""
        self._learn(body)

    def read(self) -> Found:
        return self._find(self.body)

    def callees(self) -> list[str]:
        calls = (value for value in self.values.values() if isinstance(value, relax.Call))
        return [call.op.name_hint for call in calls if isinstance(call.op, GlobalVar)]

    def _learn(self, body: relax.Expr) -> None:
        """Note what each variable is, in branches, too."""
        for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
            for binding in block.bindings:
                value = self.values[binding.var] = binding.value
                if _called(value) == _ALLOCATE:
                    self.tensors[value.args[0]] += 1
                elif isinstance(value, relax.If):
                    self._learn(value.true_branch)
                    self._learn(value.false_branch)

    def _find(self, expr: relax.Expr) -> Found:
        if isinstance(expr, relax.SeqExpr):
            return self._find(expr.body)
        if isinstance(expr, relax.If):
            return _either(self._find(expr.true_branch), self._find(expr.false_branch))
        if isinstance(expr, relax.Tuple):
            return [self._find(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            whole = self._find(expr.tuple_value)
            return whole[expr.index] if isinstance(whole, list) else _UNKNOWN
        if not isinstance(expr, relax.Var) or expr not in self.values:
            return _UNKNOWN
        if expr not in self.found:
            self.found[expr] = self._of_value(self.values[expr], expr)
        return self.found[expr]

    def _of_value(self, value: relax.Expr, var: relax.Var) -> Found:
        if not isinstance(value, relax.Call):
            return self._find(value)
        if _called(value) == _ALLOCATE:
            return frozenset([(var, 0)]) if self._is_alone(value.args[0]) else _UNKNOWN
        if _called(value) == _VIEW:
            return self._find(value.args[0])
        if not isinstance(value.op, GlobalVar):
            return _UNKNOWN
        found, own = self.owned.known[value.op.name_hint]
        return _as_made(found, own, var, count())

    def _is_alone(self, storage: relax.Expr) -> bool:
        made = self.values.get(storage) if isinstance(storage, relax.Var) else None
        return self.tensors[storage] == 1 and _called(made) == _ALLOCATE_STORAGE


def _as_made(found: Found, own: frozenset[int], var: relax.Var, places: Iterator[int]) -> Found:
    """What a function gives, as seen by a call of it: each output that is its own is one memory."""
    if isinstance(found, list):
        return [_as_made(field, own, var, places) for field in found]
    place = next(places)
    return frozenset([(var, place)]) if place in own else _UNKNOWN


def _called(expr: relax.Expr | None) -> str:
    """The name of the op, or of the packed function, that a call calls."""
    if not isinstance(expr, relax.Call):
        return ""
    if isinstance(expr.op, Op):
        return str(expr.op.name)
    return str(expr.op.global_symbol) if isinstance(expr.op, relax.ExternFunc) else ""
