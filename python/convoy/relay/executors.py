"""What the executors that ``relay.build`` makes cannot run: said in one line, beside TVM's own words.

They run ops one after another.  A branch, a loop, a function that is called by its name, and a composite
that no codegen takes, are the virtual machine's.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import tvm
from tvm import ir, relay
from tvm.ir import IRModule

from convoy.errors import TargetError
from convoy.relay.aside import holding_references
from convoy.relay.dataflow import attribute, is_asked, is_constant, post_order
from convoy.relay.errors_through_tvm import has_remembered
from convoy.relay.lets import open_functions
from convoy.relay.module import functions_of
from convoy.relay.no_touch import called_functions, is_open
from convoy.relay.resolve import is_external
from convoy.text import line

_REMEDY = "compile it with relay.vm.compile, or write the function where it is called"


def check_calls(module: IRModule) -> None:
    """The executors of ``relay.build`` call no function of the network's, but TVM builds calls of them.

    Raises
    ------
    TargetError
        For the first that is called, and not written out where it is.
    """
    for error in _calls_by_name(module):
        raise error


def warn_of_calls(module: IRModule) -> None:
    """Warn of the first such call, which may keep marked functions from their codegens."""
    for error in islice(_calls_by_name(module), 1):
        warnings.warn(line(str(error)), RuntimeWarning, stacklevel=3)


def check_tuples(module: IRModule) -> None:
    """TVM's ahead-of-time executor puts into a tuple for a codegen's function only what is computed.

    Raises
    ------
    TargetError
        For the first such tuple that has an input or a constant in it: it would be read as it lies.
    """
    for var, function in functions_of(module):
        for node in post_order(function.body) if is_open(function) else ():
            callee = node.op if isinstance(node, relay.Call) else None
            callee = module[callee] if isinstance(callee, relay.GlobalVar) else callee
            if not isinstance(callee, relay.Function) or not is_external(callee):
                continue
            fields = [f for arg in node.args if isinstance(arg, relay.Tuple) for f in arg.fields]
            if any(isinstance(field, relay.Var) or is_constant(field) for field in fields):
                got = "one with an input or a constant in a tuple for a codegen's function"
                remedy = "give the function tensors, or build for the graph executor"
                raise _not_run(f"function {var.name_hint}", got, remedy)


def has_external(module: object) -> bool:
    """Is there a function of an external codegen, so that this is no build of TVM's alone?

    What is no module TVM says itself.
    """
    functions = functions_of(module) if isinstance(module, IRModule) else []
    return any(is_external(function) for _, function in functions)


def _calls_by_name(module: IRModule) -> Iterator[TargetError]:
    waiting, seen = [module["main"]], set[str]()
    while waiting:
        for var in called_functions(waiting.pop()):
            function = module[var]
            known = not isinstance(function, relay.Function) or is_external(function)
            if var.name_hint in seen or known:
                continue
            if not is_asked(function, "Inline"):
                yield _not_run(f"function {var.name_hint}", "one that calls this by its name", _REMEDY)
            seen.add(str(var.name_hint))
            waiting.append(function)


@contextmanager
def explaining(module: IRModule, *, by_machine: bool = False) -> Iterator[None]:
    """What TVM fails over in the block, if it is something in ``module`` that its executors cannot run.

    ``by_machine``: that its virtual machine cannot run.

    Raises
    ------
    TargetError
        In place of TVM's error.
    """
    try:
        yield
    except tvm.TVMError as error:
        find = _reference_in if by_machine else _beyond_dataflow
        found = None if has_remembered() else find(module)
        if found is None:
            raise
        raise found from error


def _reference_in(module: IRModule) -> TargetError | None:
    for var in holding_references(module):
        remedy = "hand its value on by a let or as an argument"
        return TargetError(
            "target",
            f"function {var.name_hint}",
            "expected a network that TVM compiles, got one with a reference",
            remedy,
        )
    return None


def _beyond_dataflow(module: IRModule) -> TargetError | None:
    if found := _reference_in(module):
        return found
    for var, function in functions_of(module):
        if not is_open(function):
            continue
        for node in (node for inner in open_functions(function) for node in post_order(inner.body)):
            if what := _what_is_no_dataflow(node):
                return _not_run(f"function {var.name_hint}", f"one with {what}", _REMEDY.partition(",")[0])
            composite = attribute(node.op, "Composite") if _calls_function(node) else ""
            if composite and not is_external(node.op):
                remedy = "give it to one by AnnotateTarget and PartitionGraph, or take its mark off"
                got = f"one with a composite {composite}, which belongs to no codegen"
                return _not_run(f"function {var.name_hint}", got, remedy)
    return None


def _what_is_no_dataflow(node: relay.Expr) -> str:
    if isinstance(node, relay.If):
        return "" if is_constant(node.cond) else "a branch"
    if isinstance(node, relay.Let) and isinstance(node.value, relay.Function):
        return "a function that calls itself" if _calls_itself(node) else "a function that a let binds"
    if _calls_function(node) and any(isinstance(p.type_annotation, ir.FuncType) for p in node.op.params):
        return "a function that takes another"
    if _calls_function(node) and is_open(node.op):
        return "a function that is called where it is written"
    if isinstance(node, relay.Call) and isinstance(node.op, relay.TupleGetItem):
        return "a function in a tuple"
    return "a match" if isinstance(node, relay.Match) else ""


def _calls_itself(let: relay.Let) -> bool:
    return let.var in set(relay.analysis.free_vars(let.value))


def _calls_function(node: relay.Expr) -> bool:
    return isinstance(node, relay.Call) and isinstance(node.op, relay.Function)


def _not_run(node: str, got: str, remedy: str) -> TargetError:
    return TargetError("target", node, f"expected a network of ops for relay.build, got {got}", remedy)
