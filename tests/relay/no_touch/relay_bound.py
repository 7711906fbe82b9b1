"""The ways in which a Relay module may bind a marked function, and call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from relay_marked import TYPE, conv, norm
from tvm import relay
from tvm.relay.adt import Clause, PatternConstructor, PatternVar

nn = relay.nn
FUNCTION = relay.FuncType([TYPE], TYPE)
INDEX = relay.TensorType((), "int32")
Form = Callable[[relay.Function, relay.Expr], relay.Expr]


def block(x: relay.Expr) -> relay.Expr:
    """What the marked functions compute: what TVM's passes like to take apart."""
    return nn.relu(norm(conv(x)))


def mark(codegen: str, symbol: str = "", body: Form = block) -> relay.Function:
    p = relay.Var("p", TYPE)
    function = relay.Function([p], body(p), TYPE).with_attr("Compiler", codegen)
    return function.with_attr({"global_symbol": symbol, "Primitive": 1}) if symbol else function


def let(value: relay.Expr, use: Callable[[relay.Expr], relay.Expr]) -> relay.Expr:
    var = relay.var("f")
    return relay.Let(var, value, use(var))


def inside(use: Callable[[relay.Expr], relay.Expr]) -> relay.Function:
    y = relay.Var("y", TYPE)
    return relay.Function([y], use(y), TYPE)


def taking() -> relay.Function:
    """fn(g, y) { tanh(g(y)) }"""
    g, y = relay.Var("g", FUNCTION), relay.Var("y", TYPE)
    return relay.Function([g, y], relay.tanh(relay.Call(g, [y])), TYPE)


def choose(x: relay.Expr, yes: relay.Expr, no: relay.Expr) -> relay.Expr:
    return relay.If(relay.less(relay.sum(x), relay.const(0.0)), yes, no)


def recursive(f: relay.Function, x: relay.Expr) -> relay.Expr:
    loop = relay.Var("loop", relay.FuncType([INDEX, TYPE], TYPE))
    n, y = relay.Var("n", INDEX), relay.Var("y", TYPE)
    again = relay.Call(loop, [n - relay.const(1), f(y)])
    function = relay.Function([n, y], relay.If(relay.less(n, relay.const(1)), y, again), TYPE)
    return relay.Let(loop, function, relay.Call(loop, [relay.const(2), x]))


PLAIN: dict[str, Form] = {
    "called": lambda f, x: f(x),
    "called twice": lambda f, x: f(relay.tanh(f(x))),
    "let": lambda f, x: let(f, lambda v: relay.Call(v, [x])),
    "let twice": lambda f, x: let(f, lambda v: relay.Call(v, [relay.tanh(relay.Call(v, [x]))])),
    "let of a let": lambda f, x: let(f, lambda v: let(v, lambda w: relay.Call(w, [x]))),
    "tuple": lambda f, x: relay.Call(relay.TupleGetItem(relay.Tuple([x, f]), 1), [x]),
    "let of a tuple": lambda f, x: let(
        relay.Tuple([f, x]), lambda t: relay.Call(relay.TupleGetItem(t, 0), [relay.TupleGetItem(t, 1)])
    ),
    "argument": lambda f, x: taking()(f, x),
    "argument of a let": lambda f, x: let(taking(), lambda t: relay.Call(t, [f, relay.Call(t, [f, x])])),
    "returned": lambda f, x: relay.Call(relay.Call(relay.Function([], f, FUNCTION), []), [x]),
    "nested": lambda f, x: inside(lambda y: relay.tanh(f(y)))(x),
    "nested in a let": lambda f, x: let(
        inside(lambda y: let(relay.tanh(f(y)), lambda a: relay.add(a, a))),
        lambda v: relay.Call(v, [relay.Call(v, [x])]),
    ),
}  # fmt: skip
"""Those that end in calls and nothing else: every executor takes them."""


def match(module: tvm.IRModule) -> Form:
    box = relay.GlobalTypeVar("box")
    full, held = relay.Constructor("full", [TYPE], box), relay.var("held")
    module[box] = relay.TypeData(box, [], [full])
    pattern = PatternConstructor(full, [PatternVar(held)])
    return lambda f, x: relay.Match(full(x), [Clause(pattern, relay.tanh(f(held)))])


def matches(module: tvm.IRModule) -> dict[str, Form]:
    """Matches whose clauses give functions, or are in a function that is called twice."""
    maybe = relay.GlobalTypeVar("maybe")
    some, none = relay.Constructor("some", [TYPE], maybe), relay.Constructor("none", [], maybe)
    module[maybe] = relay.TypeData(maybe, [], [some, none])

    def of(x: relay.Expr, there: Callable[[relay.Expr], relay.Expr], missing: relay.Expr) -> relay.Expr:
        held = relay.var("held")
        read = Clause(PatternConstructor(some, [PatternVar(held)]), there(held))
        given = choose(x, some(relay.exp(x)), none())
        return relay.Match(given, [read, Clause(PatternConstructor(none, []), missing)])

    def twice(value: relay.Expr, x: relay.Expr) -> relay.Expr:
        return let(value, lambda v: relay.Call(v, [relay.Call(v, [x])]))

    return {
        "matched": lambda f, x: relay.Call(of(x, lambda _: f, inside(relay.tanh)), [x]),
        "matched, or chosen": lambda f, x: relay.Call(
            of(x, lambda v: choose(v, f, inside(relay.exp)), inside(relay.tanh)), [x]
        ),
        "let of a matched one": lambda f, x: twice(of(x, lambda v: inside(lambda y: f(y) + v), f), x),
        "in a match of a let": lambda f, x: twice(inside(lambda y: of(y, f, y)), x),
        "argument of a match": lambda f, x: taking()(of(x, lambda _: f, inside(relay.tanh)), x),
    }


def through_global(module: tvm.IRModule) -> Form:
    name = relay.GlobalVar("apply")
    module[name] = taking()
    return lambda f, x: relay.Call(name, [f, x])


def in_global(module: tvm.IRModule) -> Form:
    def form(f: relay.Function, x: relay.Expr) -> relay.Expr:
        name = relay.GlobalVar(f"holds_{len(module.get_global_vars())}")
        module[name] = inside(lambda y: relay.tanh(f(y)))
        return relay.Call(name, [relay.Call(name, [x])])

    return form


def forms(*, all_of_them: bool, module: tvm.IRModule) -> dict[str, Form]:
    """The forms; all of them: those too that only the virtual machine runs."""
    if not all_of_them:
        return PLAIN
    return {
        **PLAIN,
        "branch": lambda f, x: choose(x, f(x), relay.tanh(x)),
        "chosen": lambda f, x: relay.Call(choose(x, f, inside(relay.tanh)), [x]),
        "let of a chosen one": lambda f, x: let(
            choose(x, f, inside(relay.tanh)), lambda v: relay.Call(v, [relay.Call(v, [x])])
        ),
        "recursive": recursive,
        "match": match(module),
        **matches(module),
        "given to a global function": through_global(module),
        "in a global function": in_global(module),
    }


def bound(codegens: Sequence[str], *, all_of_them: bool) -> tvm.IRModule:
    """Each form, with functions of the codegens in turn; called ``<codegen>_<number of the form>``."""
    x = relay.Var("x0", TYPE)
    module = tvm.IRModule()
    made = []
    for i, form in enumerate(forms(all_of_them=all_of_them, module=module).values()):
        codegen = codegens[i % len(codegens)]
        made.append(form(mark(codegen, f"{codegen}_{i}"), nn.relu(x)))
    module["main"] = relay.Function([x], relay.Tuple(made))
    return relay.transform.InferType()(module)
