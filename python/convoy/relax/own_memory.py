"""Which outputs of a built module lie in memory that nothing else has: read off what allocates it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
    main = functions.get("main")
    if not isinstance(main, relax.Function):
        return ()
    found = _flatten(_Reader(functions, ("main",), ()).read(main.body))
    times = Counter(memory for memories in found for memory in memories)
    return tuple(i for i, each in enumerate(found) if None not in each and all(times[m] == 1 for m in each))


Memory = tuple[object, ...]
"""What a call allocates: the variables by which functions are called on the way to it, and its own."""
Memories = frozenset[Memory | None]
"""What a value may lie in; with None, if that may be somebody else's, too."""
Found = Memories | list[Any]
"""The same for each field of a tuple."""
_UNKNOWN: Found = frozenset([None])


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

    def __init__(self, functions: Mapping[str, Any], callers: tuple[str, ...], way: Memory) -> None:
        self.functions, self.callers, self.way = functions, callers, way
        self.values: dict[relax.Var, relax.Expr] = {}
        self.tensors: Counter[relax.Expr] = Counter()
        """How many tensors are in each storage: TVM's plan of memory shares storages."""

    def read(self, body: relax.Expr) -> Found:
        self._learn(body)
        return self._find(body)

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
        value = self.values[expr]
        if not isinstance(value, relax.Call):
            return self._find(value)
        if _called(value) == _ALLOCATE:
            return frozenset([(*self.way, expr)]) if self._is_alone(value.args[0]) else _UNKNOWN
        if _called(value) == _VIEW:
            return self._find(value.args[0])
        return self._result(value, expr)

    def _is_alone(self, storage: relax.Expr) -> bool:
        made = self.values.get(storage) if isinstance(storage, relax.Var) else None
        return self.tensors[storage] == 1 and _called(made) == _ALLOCATE_STORAGE

    def _result(self, call: relax.Call, var: relax.Var) -> Found:
        """What a function of the module gives; unknown for others, and for one that calls itself."""
        name = call.op.name_hint if isinstance(call.op, GlobalVar) else ""
        callee = self.functions.get(name)
        if not isinstance(callee, relax.Function) or name in self.callers:
            return _UNKNOWN
        return _Reader(self.functions, (*self.callers, name), (*self.way, var)).read(callee.body)


def _called(expr: relax.Expr | None) -> str:
    """The name of the op, or of the packed function, that a call calls."""
    if not isinstance(expr, relax.Call):
        return ""
    if isinstance(expr.op, Op):
        return str(expr.op.name)
    return str(expr.op.global_symbol) if isinstance(expr.op, relax.ExternFunc) else ""
