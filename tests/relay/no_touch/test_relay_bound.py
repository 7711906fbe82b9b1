"""A marked function comes to its codegen as it was written, however it is bound and whoever builds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import tvm
from relay_bound import FUNCTION, PLAIN, block, bound, inside, mark
from relay_marked import TYPE, X
from tvm import relay, te
from tvm.relay.backend import Executor

from convoy.errors import ModelError
from convoy.relay import NoTouch, no_touch, partition_for_convoy
from convoy.relay.dataflow import Dataflow, attribute, op_name
from convoy.relay.fold import fold, fold_scales, normalize_layout, simplify
from convoy.relay.no_touch import marked_functions
from convoy.relay.partition import partition
from relay.relay_modules import random, run

CODEGENS = ("acme", "convoy", "other")
AHEAD = Executor("aot", {"interface-api": "packed"})
Seen = list[tuple[str, relay.Function]]
"""Codegen and function."""


@pytest.fixture
def seen() -> Iterator[Seen]:
    """What the codegens got; Convoy's, and those that other tests registered, are put aside meanwhile."""
    found: Seen = []
    names = [f"relay.ext.{codegen}{name}" for codegen in CODEGENS for name in ("", ".constant_updater")]
    before = {name: tvm.get_global_func(name, allow_missing=True) for name in names}

    def generate(codegen: str, function: relay.Function) -> tvm.runtime.Module:
        found.append((codegen, function))
        create = tvm.get_global_func("runtime.CSourceModuleCreate")
        return create("// nothing", "c", [function.attrs["global_symbol"]], [])

    for codegen in CODEGENS:
        tvm.register_func(f"relay.ext.{codegen}", partial(generate, codegen), override=True)
        tvm.register_func(f"relay.ext.{codegen}.constant_updater", lambda *_: {}, override=True)
    yield found
    for name, function in before.items():
        tvm._ffi.registry.remove_global_func(name)
        if function is not None:
            tvm.register_func(name, function, override=True)


ENTRIES: dict[str, tuple[bool, Callable[[tvm.IRModule], object]]] = {
    "relay.build": (False, lambda mod: relay.build(mod, "convoy")),
    "aot": (False, lambda mod: relay.build(mod, "convoy", executor=AHEAD)),
    "partitioned first": (False, lambda mod: relay.build(partition_for_convoy(mod), "llvm")),
    "partitioned first, as it is": (
        False, lambda mod: relay.build(partition_for_convoy(mod, folding=False), "llvm")),
    "vm": (True, lambda mod: relay.vm.compile(mod, target="convoy")),
    "vm, partitioned first": (True, lambda mod: relay.vm.compile(partition_for_convoy(mod), target="llvm")),
}  # fmt: skip
"""Each entry: does it take all forms?  The virtual machine does, but at no level below 1."""
LEVELS = [
    *(("relay.build", level) for level in (0, 3)),
    *(("vm", level) for level in (1, 3)),
    ("aot", 0),
    ("aot", 3),
    ("partitioned first", 3),
    ("partitioned first, as it is", 0),
    ("vm, partitioned first", 3),
]


@pytest.mark.parametrize(("entry", "level"), LEVELS)
def test_it_comes_to_its_codegen_as_it_was_written(entry: str, level: int, seen: Seen) -> None:
    # every form in one module, the codegens in turn  =>  each arrives, once, whole
    all_of_them, build = ENTRIES[entry]
    before = bound(CODEGENS, all_of_them=all_of_them)
    with tvm.transform.PassContext(opt_level=level):
        build(before)
    expected = names(bound(CODEGENS, all_of_them=all_of_them))
    arrived = [(codegen, symbol_of(function)) for codegen, function in seen]
    assert sorted(set(arrived) if entry == "aot" else arrived) == expected
    assert all(same(function, mark("any")) for _, function in seen)


def names(module: tvm.IRModule) -> list[tuple[str, str]]:
    """Codegen and symbol of each marked function, each once."""
    found = marked_functions(module).values()
    return sorted({(attribute(f, "Compiler"), attribute(f, "global_symbol")) for f in found})


def symbol_of(function: relay.Function) -> str:
    """Its name, without what code made ahead of time has behind it: a hash, and a number for each call."""
    return "_".join(attribute(function, "global_symbol").split("_")[:2])


def same(got: relay.Function, want: relay.Function) -> bool:
    """Equal but for attributes, of which TVM adds some."""
    plain = (relay.Function(list(f.params), f.body) for f in (got, want))
    infer = relay.transform.InferType()
    return bool(tvm.ir.structural_equal(*(infer(tvm.IRModule.from_expr(f)) for f in plain)))


@pytest.mark.slow
def test_it_computes_what_it_did_without_the_mark() -> None:
    # one function of Convoy's in every form  =>  the results of the same module without a mark
    def make(function: relay.Function) -> tvm.IRModule:
        x = relay.Var("x0", TYPE)
        made = [relay.tanh(form(function, relay.tanh(x))) for form in PLAIN.values()]
        return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.Tuple(made))))

    function, x = mark("convoy", "convoy_0"), random(*X)
    unmarked = make(function.without_attr("Compiler").without_attr("Primitive"))
    want = [item.numpy() for item in relay.create_executor("debug", mod=unmarked).evaluate()(x)]
    executable = relay.vm.compile(make(function), target="convoy")
    by_machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).run(tvm.nd.array(x))
    for got in (run(relay.build(make(function), "convoy"), x), [item.numpy() for item in by_machine]):
        for mine, theirs in zip(got, want, strict=True):
            assert np.abs(mine - theirs).max() <= 1e-5 * np.abs(theirs).max()


PASSES = {
    "fold": fold(), "fold_scales": fold_scales(), "normalize_layout": normalize_layout(),
    "simplify": simplify(), "partition": partition,
}  # fmt: skip


@pytest.mark.parametrize("name", PASSES)
def test_convoys_own_passes_leave_it_as_it_is(name: str) -> None:
    # of whoever's codegen, in every form; and nothing is lifted
    before = bound(CODEGENS, all_of_them=True)
    compare_marked(before, PASSES[name](before))


def compare_marked(before: tvm.IRModule, after: tvm.IRModule) -> None:
    """The functions marked before are marked after, as they were."""
    found = {attribute(f, "global_symbol"): f for f in marked_functions(after).values()}
    for function in marked_functions(before).values():
        assert tvm.ir.structural_equal(found[attribute(function, "global_symbol")], function)


# What a marked function uses from around it ----------------------------------------------------------


USED: dict[str, tuple[Callable[[relay.Expr, relay.Var], relay.Expr], relay.Expr, int]] = {
    "a value": (lambda p, v: block(p) + v, None, 2),
    "a literal": (lambda p, v: block(p) + v, relay.const(np.ones(X, np.float32)), 1),
    "a function": (lambda p, v: relay.Call(v, [block(p)]), inside(relay.tanh), 1),
}
"""How a function uses what is around it, what that is (None: a value), how many arguments it gets."""


@pytest.mark.parametrize("what", USED)
def test_what_it_uses_from_around_it(what: str) -> None:
    # a value becomes an argument; a literal, or a function, is written into it
    use, value, arguments = USED[what]
    v, x = relay.var("v"), relay.Var("x0", TYPE)
    called = mark("acme", "acme_0", lambda p: use(p, v))(relay.tanh(x))
    main = relay.Function([x], relay.Let(v, relay.exp(x) if value is None else value, called))
    got = partition_for_convoy(tvm.IRModule.from_expr(main), folding=False)["acme_0"]
    p, q = relay.Var("p", TYPE), relay.Var("q", TYPE)
    want = relay.Function([p, q][:arguments], use(p, q if value is None else value))
    assert same(got, want)


def test_a_global_function_it_calls_is_written_into_it() -> None:
    x, name = relay.Var("x0", TYPE), relay.GlobalVar("helper")
    module = tvm.IRModule({name: inside(relay.tanh)})
    module["main"] = relay.Function([x], mark("acme", "acme_0", lambda p: name(block(p)))(x))
    got = partition_for_convoy(module, folding=False)["acme_0"]
    assert same(got, inside(lambda p: relay.tanh(block(p))))


def test_a_marked_function_that_calls_itself_is_an_error() -> None:
    v, x = relay.Var("v", FUNCTION), relay.Var("x0", TYPE)
    function = mark("acme", "acme_0", lambda p: relay.Call(v, [relay.tanh(p)]))
    module = tvm.IRModule.from_expr(relay.Function([x], relay.Let(v, function, relay.Call(v, [x]))))
    with pytest.raises(ModelError, match="function 'acme_0': expected a marked function that calls only"):
        partition_for_convoy(module)


def giving(
    result: Callable[[relay.Expr], relay.Expr], take: Callable[[relay.Expr], relay.Expr]
) -> tvm.IRModule:
    """main: a marked function with this result, of which something is taken."""
    p, x = relay.Var("p", TYPE), relay.Var("x0", TYPE)
    marks = {"Compiler": "acme", "global_symbol": "acme_0"}
    function = relay.Function([p], result(p)).with_attr(marks)
    body = relay.tanh(take(function(relay.exp(x))))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_tuple_in_a_tuple_as_a_result_is_an_error(entry: str, seen: Seen) -> None:
    inner = giving(
        lambda p: relay.Tuple([p, relay.Tuple([block(p), relay.exp(p)])]),
        lambda r: relay.TupleGetItem(relay.TupleGetItem(r, 1), 0),
    )
    message = (
        "^partition: function 'acme_0': expected tensors or one tuple of them as its result, got a tuple in"
    )
    with pytest.raises(ModelError, match=message):
        ENTRIES[entry][1](inner)
    ENTRIES[entry][1](giving(lambda p: relay.Tuple([block(p), p]), lambda r: relay.TupleGetItem(r, 0)))
    assert [codegen for codegen, _ in seen] == ["acme"]


# Names ----------------------------------------------------------------------------------------------


def test_functions_without_a_name_and_of_one_name() -> None:
    # two of one name that differ, one without a name, and a global one without all that TVM asks of it
    x, held = relay.Var("x0", TYPE), relay.GlobalVar("held")
    module = tvm.IRModule({held: mark("acme")})
    y = mark("acme", "one")(mark("acme", "one", relay.tanh)(x))
    module["main"] = relay.Function([x], held(held(mark("acme", body=relay.exp)(y))))
    cut = partition_for_convoy(module, folding=False)
    found = {var.name_hint: attribute(f, "global_symbol") for var, f in cut.functions.items()}
    assert found.pop("main") == ""
    assert sorted(found.values()) == ["acme_0", "held", "held", "one", "one_1"]
    assert tvm.ir.structural_equal(partition_for_convoy(cut, folding=False), cut), "nothing is left to do"


# The guard -------------------------------------------------------------------------------------------


HIDDEN_FROM = (
    "SimplifyInference", "FoldConstant", "ToANormalForm", "DeadCodeElimination", "FuseOps",
    "EliminateCommonSubexpr", "LambdaLift", "CanonicalizeOps", "FoldScaleAxis", "SimplifyExpr", "FastMath",
    "Inline",
)  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN_FROM)
def test_no_touch_hides_every_form(name: str) -> None:
    before = bound(CODEGENS, all_of_them=True)
    with tvm.transform.PassContext(opt_level=3):
        after = no_touch(getattr(relay.transform, name)())(before)
    compare_marked(before, after)


def test_no_touch_passes_on_what_a_marked_function_uses() -> None:
    # let v = exp(x); marked { … + v }, and a pass that gives every value another name
    x, v = relay.Var("x0", TYPE), relay.var("v")
    called = mark("acme", "acme_0", lambda p: block(p) + v)(relay.tanh(x))
    module = relay.transform.InferType()(
        tvm.IRModule.from_expr(relay.Function([x], relay.Let(v, relay.exp(x), called)))
    )
    passes = [relay.transform.ToANormalForm(), relay.transform.ToGraphNormalForm()]
    after = no_touch(passes)(module)
    assert not relay.analysis.free_vars(after["main"])
    (function,) = marked_functions(after).values()
    assert [op_name(call) for call in Dataflow(function.body).calls] == [
        "nn.conv2d", "nn.batch_norm", "nn.relu", "add",
    ]  # fmt: skip


def test_a_build_touches_none(seen: Seen) -> None:
    x = relay.Var("x0", TYPE)
    main = relay.Function([x], relay.tanh(PLAIN["let"](mark("acme", "acme_0"), x)))
    with tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]):
        relay.build(tvm.IRModule.from_expr(main), "convoy")
    assert seen


def test_the_instrument_allows_a_pass_that_partitions() -> None:
    # it gives one region back, cuts another out, and lifts a marked function that is written in a let
    @tvm.ir.transform.module_pass(opt_level=0, name="Mine")
    def mine(module: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
        return partition_for_convoy(partition(module), folding=False)

    x, small = relay.Var("x0", TYPE), relay.Var("x1", relay.TensorType((1, 4)))
    marked = PLAIN["let"](mark("acme", "acme_0"), relay.sinh(block(x)))
    main = relay.Function([x, small], relay.Tuple([marked, relay.sinh(relay.exp(small))]))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(main))
    with tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]):
        after = mine(module)
    owners = sorted(attribute(function, "Compiler") for _, function in after.functions.items())
    assert owners == ["", "acme", "convoy"]


def test_the_instrument_names_a_pass_that_opens_a_let() -> None:
    x = relay.Var("x0", TYPE)
    main = relay.Function([x], PLAIN["let"](mark("acme", "acme_0"), x))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(main))
    with (
        pytest.raises(Exception, match="SimplifyInference: function 'main: acme_0'"),
        tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]),
    ):
        relay.transform.SimplifyInference()(module)


def test_the_instrument_looks_on_where_a_pass_has_failed() -> None:
    @tvm.ir.transform.module_pass(opt_level=0, name="PartitionGraph")
    def fails(module: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
        raise ValueError("refused")

    x = relay.Var("x0", TYPE)
    main = relay.Function([x], PLAIN["let"](mark("acme", "acme_0"), x))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(main))
    with tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]):
        for _ in range(2):
            with pytest.raises(Exception, match="refused"):
                fails(module)
            with pytest.raises(Exception, match="SimplifyInference: function 'main: acme_0'"):
                relay.transform.SimplifyInference()(module)


def test_closures_are_listed_by_their_symbols() -> None:
    # one, another of the same name, and one without
    x = relay.Var("x0", TYPE)
    body = mark("acme", "one")(mark("acme", "one", relay.tanh)(mark("acme", body=relay.exp)(x)))
    found = marked_functions(tvm.IRModule.from_expr(relay.Function([x], body)))
    assert sorted(found) == ["main: Compiler acme 0", "main: one", "main: one 1"]


def test_the_instrument_knows_a_function_whose_surroundings_are_renamed() -> None:
    @tvm.ir.transform.module_pass(opt_level=0, name="ThroughText")
    def through_text(module: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
        return tvm.ir.load_json(tvm.ir.save_json(module))

    x, v = relay.Var("x0", TYPE), relay.var("v")
    called = mark("acme", "acme_0", lambda p: block(p) + v)(relay.tanh(x))
    main = relay.Function([x], relay.Let(v, relay.exp(x), called))
    with tvm.transform.PassContext(instruments=[NoTouch()]):
        through_text(relay.transform.InferType()(tvm.IRModule.from_expr(main)))


def test_the_instrument_lets_a_guarded_pass_remove_dead_code() -> None:
    # let unread = marked(x)  =>  gone with its call; without the guard it is the pass's to answer for
    x, v = relay.Var("x0", TYPE), relay.var("unread")
    main = relay.Function([x], relay.Let(v, mark("acme", "acme_0")(x), relay.tanh(x)))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(main))
    remove = relay.transform.DeadCodeElimination()
    with tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]):
        assert not marked_functions(tvm.transform.Sequential([no_touch(remove)])(module))
        with pytest.raises(
            Exception, match="DeadCodeElimination: function 'main: acme_0': expected it unch"
        ):
            remove(module)


def test_the_instrument_is_silent_about_a_build_by_the_virtual_machine(seen: Seen) -> None:
    # TVM makes the function anew, and a maker consumes it, in one sequence
    x = relay.Var("x0", TYPE)
    main = relay.Function([x], relay.tanh(PLAIN["let"](mark("acme", "acme_0"), x)))
    with tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]):
        relay.vm.compile(tvm.IRModule.from_expr(main), target="convoy")
    assert seen


@pytest.mark.filterwarnings("ignore::convoy.offload.faults.RegionWarning")
def test_the_instrument_allows_what_the_road_does_to_marked_functions() -> None:
    # one without a name gets one, one of Convoy's that does not compile loses its mark
    @tvm.ir.transform.module_pass(opt_level=0, name="Mine")
    def mine(module: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
        return partition_for_convoy(module, folding=False)

    x = relay.Var("x0", TYPE)
    unknown = mark("convoy", "convoy_0", lambda p: relay.cumsum(p, axis=1))
    module = tvm.IRModule.from_expr(relay.Function([x], mark("acme")(unknown(relay.tanh(x)))))
    with tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]):
        after = mine(relay.transform.InferType()(module))
    assert [attribute(f, "Compiler") for f in marked_functions(after).values()] == ["acme"]


def test_a_kernel_of_lower_levels_stays_beside_what_is_cut_out() -> None:
    # PartitionGraph failed over a PrimFunc, which relay.build takes
    a = te.placeholder((4,), name="a")
    kernel = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1, name="b")])
    x = relay.Var("x0", TYPE)
    main = relay.Function([x], relay.nn.relu(block(mark("acme", "acme_0")(x))))
    module = tvm.IRModule({relay.GlobalVar("main"): main, relay.GlobalVar("kernel"): kernel})
    after = partition_for_convoy(relay.transform.InferType()(module))
    assert tvm.ir.structural_equal(after["kernel"], kernel)


@pytest.mark.parametrize("change", ["another", "unmarked"])
def test_the_instrument_sees_which_of_two_equal_functions_was_touched(change: str) -> None:
    @tvm.ir.transform.module_pass(opt_level=0, name="Touch")
    def touch(module: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
        main = module["main"]
        last = main.body.op
        new = last.without_attr("Compiler") if change == "unmarked" else mark("acme", body=relay.tanh)
        return tvm.IRModule.from_expr(relay.Function(list(main.params), relay.Call(new, main.body.args)))

    x = relay.Var("x0", TYPE)
    body = mark("acme", body=relay.exp)(mark("acme", body=relay.exp)(x))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
    with (
        pytest.raises(Exception, match="Touch: function 'main: Compiler acme 1'"),
        tvm.transform.PassContext(instruments=[NoTouch()]),
    ):
        touch(module)
    anew = tvm.ir.transform.module_pass(
        lambda m, _: tvm.ir.load_json(tvm.ir.save_json(m)), opt_level=0, name="Anew"
    )
    with tvm.transform.PassContext(instruments=[NoTouch()]):
        anew(module)


@pytest.mark.parametrize("entry", ["relay.build", "vm", "partitioned first"])
def test_the_instrument_lets_a_build_remove_what_nobody_calls(entry: str, seen: Seen) -> None:
    x = relay.Var("x0", TYPE)
    module = tvm.IRModule.from_expr(relay.Function([x], relay.tanh(x)))
    module[relay.GlobalVar("acme_0")] = mark("acme", "acme_0").with_attr("Inline", 1)
    with tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]):
        ENTRIES[entry][1](relay.transform.InferType()(module))
    assert not seen


def test_the_instrument_lets_a_build_merge_equal_functions(seen: Seen) -> None:
    x = relay.Var("x0", TYPE)
    body = mark("acme", "one", relay.exp)(relay.tanh(mark("acme", "one", relay.exp)(x)))
    with tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]):
        relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "convoy")
    assert seen
