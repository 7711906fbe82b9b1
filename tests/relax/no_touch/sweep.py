"""Run a pass over a module under the guard, in a process of its own, and say what is wrong then."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile

import numpy as np
import tvm
import tvm_ffi
from all_passes import all_passes
from crowded import MODULES
from tvm import relax
from tvm.ir import GlobalVar, IRModule

from convoy.relax.local_functions import replace_local
from convoy.relax.no_touch import MARKS, is_marked, marked_functions, no_touch
from convoy.relax.stand_in_bodies import stands_for

TARGET = tvm.target.Target("llvm")

# What must hold -----------------------------------------------------------------------------------


def check(name: str, make: Callable[[], tvm.ir.transform.Pass], module: IRModule) -> list[str]:
    """What is wrong with ``module`` after the pass under the guard; it may raise where plain TVM does."""
    before = tvm_ffi.structural_hash(module)
    result = apply(no_touch(make()), module)
    wrong = [] if tvm_ffi.structural_hash(module) == before else ["the module it was given is another"]
    if result is None:
        if apply(make(), module) is not None:
            wrong.append("raises, and without the guard it does not")
        return wrong
    wrong += [*compare(module, result), *_well_formed(make, module, result)]
    return wrong + (list(other_answers(make, module, result)) if os.environ.get("SWEEP_RUN") else [])


def apply(touch: tvm.ir.transform.Pass, module: IRModule) -> IRModule | None:
    """The module after a pass; None where it raises."""
    try:
        with TARGET:
            return touch(module)
    except Exception:
        if os.environ.get("SWEEP_TRACE"):
            traceback.print_exc()
        return None


def compare(module: IRModule, result: IRModule) -> Iterator[str]:
    """What happened to marked functions and to their calls."""
    after = {var.name_hint: function for var, function in result.functions_items()}
    for var, function in marked_functions(module).items():
        now = after.get(var.name_hint)
        if now is None or not tvm_ffi.structural_equal(now, function):
            yield f"{var.name_hint} is {'gone' if now is None else 'another'}"
    left = Counter(local_marked(result))
    for local, many in Counter(local_marked(module)).items():
        if left[local] < many:
            yield f"a local function was there {many} times and is there {left[local]} times"
    if any(stands_for(f) is not None for f in after.values()) or any(_stand_ins(result)):
        yield "a stand-in is left"
    calls, kept = Counter(called(module)), Counter(called(result))
    for name, many in calls.items():
        if kept[name] < many:
            yield f"calls of {name}: were {many}, are {kept[name]}"
    yield from wrong_calls(result)


def _well_formed(
    make: Callable[[], tvm.ir.transform.Pass], module: IRModule, result: IRModule
) -> Iterator[str]:
    try:
        relax.analysis.well_formed(result)
    except Exception as error:
        plain = apply(make(), module)
        try:
            assert plain is not None
            relax.analysis.well_formed(plain)
        except Exception:
            return
        yield f"is not well formed: {str(error).splitlines()[0]}"


# What it computes ---------------------------------------------------------------------------------


def other_answers(
    make: Callable[[], tvm.ir.transform.Pass], module: IRModule, result: IRModule
) -> Iterator[str]:
    """Without marks, the guarded result computes what the pass makes of the unmarked module."""
    plain = apply(make(), unmark(module))
    if plain is None or (want := run(plain)) is None:
        return
    got = run(unmark(result))
    if got is None:
        yield "cannot be compiled or run, and without marks it can"
    elif not all(np.allclose(g, w, rtol=1e-3, atol=1e-3) for g, w in zip(got, want, strict=True)):
        yield "computes something else"


def unmark(module: IRModule) -> IRModule:
    def strip(_: str, function: relax.Function) -> relax.Function | None:
        if not is_marked(function):
            return None
        for mark in (*MARKS, "Primitive"):
            function = function.without_attr(mark)
        return replace_local(function, strip)

    functions = {}
    for var, function in module.functions_items():
        functions[var] = strip("", function) or replace_local(function, strip)
    return IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def run(module: IRModule) -> list[np.ndarray] | None:
    """What main computes of seeded inputs; None where it does not compile, or wants something else."""
    rng = np.random.default_rng(0)
    try:
        with TARGET:
            module = relax.transform.LambdaLift()(module)
            machine = relax.VirtualMachine(tvm.compile(module, TARGET), tvm.cpu())
        inputs = []
        for param in module["main"].params:
            shape = [int(d) if isinstance(d, tvm.tirx.IntImm) else 2 for d in param.ty.shape.values]
            inputs.append(tvm.runtime.tensor(rng.random(shape).astype(str(param.ty.dtype))))
        out = machine["main"](*inputs)
    except Exception:
        if os.environ.get("SWEEP_TRACE"):
            traceback.print_exc()
        return None
    return [out.numpy()] if isinstance(out, tvm.runtime.Tensor) else [o.numpy() for o in out]


# What is there ------------------------------------------------------------------------------------


def bodies(module: IRModule) -> Iterator[relax.Function]:
    """The unmarked functions."""
    for _, function in module.functions_items():
        if isinstance(function, relax.Function) and not is_marked(function):
            yield function


def local_marked(module: IRModule) -> Iterator[int]:
    """The structural hashes of the local marked functions, also of those that a pass has lifted."""
    found: list[relax.Function] = []

    def note(_: str, function: relax.Function) -> relax.Function | None:
        if is_marked(function):
            found.append(function)
            return function
        return None

    for function in bodies(module):
        replace_local(function, note)
    found += [f for v, f in marked_functions(module).items() if "global_symbol" not in (f.attrs or {})]
    return (tvm_ffi.structural_hash(closed(f), map_free_vars=True) for f in found)


def closed(function: relax.Function) -> relax.Function:
    """The function with what it reads from around it as parameters: what lifting makes of it."""
    outside = relax.analysis.free_vars(function)
    if not outside:
        return function
    params = [*function.params, *outside]
    return relax.Function(params, function.body, function.ret_ty, function.is_pure, function.attrs)


def _stand_ins(module: IRModule) -> Iterator[bool]:
    for function in bodies(module):
        yield "convoy_stands_for" in function.script()


def calls(module: IRModule) -> Iterator[relax.Call]:
    found: list[relax.Call] = []

    def look(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, GlobalVar):
            found.append(expr)

    for function in bodies(module):
        relax.analysis.post_order_visit(function, look)
    return iter(found)


def called(module: IRModule) -> Iterator[str]:
    """The marked functions that are called, each as often as it is."""
    marked = {var.name_hint for var in marked_functions(module)}
    return (call.op.name_hint for call in calls(module) if call.op.name_hint in marked)


def wrong_calls(module: IRModule) -> Iterator[str]:
    """Calls of marked functions with what they do not take, and of what is not in the module."""
    functions = dict(module.functions_items())
    for call in calls(module):
        function = functions.get(call.op)
        if function is None:
            yield f"calls {call.op.name_hint}, which is not in the module"
        elif is_marked(function):
            takes = [relax.analysis.get_static_type(param.ty) for param in function.params]
            gets = [relax.analysis.get_static_type(arg.ty) for arg in call.args]
            if len(takes) != len(gets) or not all(map(tvm_ffi.structural_equal, takes, gets)):
                yield f"calls {call.op.name_hint} with other arguments than it takes"


# Processes ----------------------------------------------------------------------------------------


def in_a_process(run: Callable[[], Iterable[str]]) -> list[str]:
    """What ``run`` says in a process of its own; a crash is an outcome, too."""
    lines, status = fork(run)
    return [f"ends by signal {os.WTERMSIG(status)}"] if os.WIFSIGNALED(status) else lines


def fork(run: Callable[[], Iterable[str]]) -> tuple[list[str], int]:
    """What ``run`` says in a process of its own until it ends, and how that ends."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        faulthandler.disable()
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # TVM's handler allocates, and may wait forever
        if not os.environ.get("SWEEP_TRACE"):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with os.fdopen(writer, "w", buffering=1) as out:
            try:
                for line in run():
                    print(line, file=out)
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        lines = answer.read().splitlines()
    return lines, os.waitpid(child, 0)[1]


def sweep(name: str, module: str) -> list[str]:
    """What the pass of this name breaks in the module of this name."""
    make, build = all_passes()[name], MODULES[module]
    wrong = in_a_process(lambda: check(name, make, build()))
    if not (wrong and wrong[0].startswith("ends by")):
        return wrong
    # Plain TVM crashes, too, with the marks or, where with them it raises first, without.
    plain = [build(), unmark(build())]
    crashes = [in_a_process(lambda module=m: [str(apply(make(), module) is not None)]) for m in plain]
    return [] if wrong in crashes else wrong


def sweep_all(names: Iterable[str], module: str) -> dict[str, list[str]]:
    """What each pass breaks in the module.

    Passes that break nothing share a process, as a fork takes longer than most; one that breaks something
    there, or ends the process, is judged in one of its own.
    """
    left, found = list(names), {}
    while left:
        clean = count_clean(left, module)
        found.update({name: [] for name in left[:clean]})
        found.update({name: sweep(name, module) for name in left[clean : clean + 1]})
        left = left[clean + 1 :]
    return found


def count_clean(names: Sequence[str], module: str) -> int:
    """How many passes, run one after the other in one process, break nothing before one does."""

    def run() -> Iterator[str]:
        for name in names:
            if check(name, all_passes()[name], MODULES[module]()):
                return
            yield name

    lines, _ = fork(run)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(names, lines, strict=False)))


if __name__ == "__main__":
    for build in MODULES.values():
        build()
    chosen = sys.argv[1:] or list(all_passes())
    for name in chosen:
        print(name, file=sys.stderr, flush=True)
        for module in MODULES:
            for line in sweep(name, module):
                print(f"{name} on {module}: {line}", flush=True)
