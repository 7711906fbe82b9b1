"""Somebody else's backend uses the folds, patterns, partitioning, guard and reasons of the Relay door."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from relay_modules import const, module, random, run, run_plain, weight
from tvm import relay
from tvm.relay import op
from tvm.relay.dataflow_pattern import is_op, wildcard

import convoy.relay
from convoy.errors import ConvoyError, GuardError, ModelError, RefusedError, ToolchainError
from convoy.graph import reference
from convoy.options import Options
from convoy.relay.dataflow import composite_name, op_name, post_order
from convoy.relay.lower import lower
from convoy.relay.partition import external_functions
from convoy.report.decision import Report
from own_backend.classic_acme import compile_function, refuse

IMAGE = (1, 8, 12, 12)


def network() -> tvm.IRModule:
    """conv2d 3x3 → batch norm → relu → conv2d 1x1 → sigmoid."""

    def make(x: relay.Expr) -> relay.Expr:
        y = op.nn.conv2d(x, weight(8, 8, 3, 3), padding=(1, 1))
        y = op.nn.batch_norm(y, weight(8), weight(8), weight(8), const(1 + random(8) ** 2))[0]
        return op.sigmoid(op.nn.conv2d(op.nn.relu(y), weight(4, 8, 1, 1)))

    return convoy.relay.fold()(module(make, IMAGE))


def test_its_function_holds_what_it_takes_as_one_composite():
    # conv2d 3x3 + bias + relu  =>  acme.conv2d_bias_relu
    cut = convoy.relay.partition(network(), codegen="acme", refuse=refuse)
    (function,) = external_functions(cut, "acme").values()
    assert [n for node in post_order(function.body) if (n := composite_name(node))] == [
        "acme.conv2d_bias_relu"
    ]
    assert not external_functions(cut), "nothing is Convoy's"


def test_a_graph_of_its_function_computes_what_tvm_computes():
    def make(x: relay.Expr) -> relay.Expr:
        return op.nn.relu(op.add(op.nn.conv2d(x, weight(8, 8, 3, 3), padding=(1, 1)), x))

    before = module(make, IMAGE)
    cut = convoy.relay.partition(before, codegen="acme", refuse=refuse)
    (function,) = external_functions(cut, "acme").values()
    x = random(*IMAGE)
    (found,) = reference.run(lower(function), [x])
    expected = relay.create_executor("graph", mod=before).evaluate()(x).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_convoy_takes_what_it_leaves():
    cut = convoy.relay.partition(network(), codegen="acme", refuse=refuse)
    both = convoy.relay.partition(cut, Options(merge=False))
    assert len(external_functions(both, "acme")) == 1
    assert len(external_functions(both)) == 1


def test_each_op_it_leaves_has_its_reason():
    report = Report()
    convoy.relay.partition(network(), None, report, codegen="acme", refuse=refuse)
    assert [d.reason for d in report.refusals] == [
        "acme has 3x3 convolutions only, this is 1x1",
        "acme has no sigmoid",
    ]


def test_strict_raises_its_first_reason():
    with pytest.raises(RefusedError, match="acme has 3x3 convolutions only, this is 1x1"):
        convoy.relay.partition(network(), Options(strict=True), codegen="acme", refuse=refuse)


@pytest.mark.parametrize("nothing", [None, "", False])
def test_a_refusal_of_nothing_is_none(nothing):
    cut = convoy.relay.partition(conv_relu(1), codegen="acme", refuse=lambda _: nothing)
    assert len(external_functions(cut, "acme")) == 1


def test_a_refusal_without_words_is_an_error():
    with pytest.raises(ConvoyError, match="refuse: expected a reason in words or None, got True; return a"):
        convoy.relay.partition(conv_relu(1), codegen="acme", refuse=lambda _: True)


@pytest.mark.parametrize("name", ["", "acme.x", "default", "ünpu", None, 7])
def test_a_codegen_that_is_no_name_is_an_error(name):
    with pytest.raises(
        ConvoyError, match=r"partition: codegen .*: expected letters, digits and underscores"
    ):
        convoy.relay.partition(conv_relu(1), codegen=name, refuse=refuse)


@pytest.mark.parametrize("name", [3, "réseau"])
def test_a_module_s_name_is_a_text_of_ascii(name: object) -> None:
    with pytest.raises(ConvoyError, match=rf"^partition: name {name!r}: expected a text of ASCII"):
        convoy.relay.partition(conv_relu(1), name=name, codegen="acme", refuse=refuse)  # type: ignore[arg-type]


def test_a_refusal_that_cannot_be_asked_is_an_error():
    with pytest.raises(
        ConvoyError, match="refuse: expected a function of a call, got an object of type str"
    ):
        convoy.relay.partition(conv_relu(1), codegen="acme", refuse="no")


def test_a_function_is_a_module_and_nothing_else_is():
    assert len(external_functions(convoy.relay.partition(conv_relu(1)["main"]))) == 1
    with pytest.raises(
        ModelError, match="expected a Relay IRModule or Function, got an object of this type"
    ):
        convoy.relay.partition(None)


# What it marks itself --------------------------------------------------------------------------------


def test_ops_that_its_own_attributes_take_are_not_given_back():
    # cast, which no pattern of ours takes, is some codegen's by its attribute, however small
    tvm.ir.register_op_attr("cast", "target.acme_casts")(lambda call: True)
    mod = module(lambda x: op.cast(op.exp(x), "int8"), IMAGE)
    report = Report()
    cut = convoy.relay.partition(mod, None, report, codegen="acme_casts", refuse=lambda _: "no exp")
    (function,) = external_functions(cut, "acme_casts").values()
    assert [op_name(node) for node in post_order(function.body) if op_name(node)] == ["cast"]
    assert [d.choice for d in report.decisions] == ["left", "taken"]


@pytest.mark.parametrize("shape", [(1, 2, 4, 4), (1, 64, 32, 32)])
def test_its_own_composites_stay_whole(shape):
    x = relay.var("x0", shape=shape)
    block = is_op("sigmoid")(is_op("nn.relu")(wildcard()))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(op.sigmoid(op.nn.relu(x))))
    mod = relay.transform.MergeComposite([("acme.block", block)])(mod)
    cut = convoy.relay.partition(mod, codegen="acme", refuse=lambda _: "nothing else")
    (function,) = external_functions(cut, "acme").values()
    assert [n for node in post_order(function.body) if (n := composite_name(node))] == ["acme.block"]


def annotated(codegen):
    """The ops that TVM's own passes cut out for a codegen."""
    mod = module(lambda x: op.nn.batch_flatten(op.sqrt(op.exp(x))), IMAGE)
    passes = [relay.transform.AnnotateTarget(codegen), relay.transform.PartitionGraph()]
    cut = tvm.transform.Sequential(passes)(mod)
    functions = external_functions(cut, codegen).values()
    return {op_name(node) for function in functions for node in post_order(function.body) if op_name(node)}


def test_what_was_registered_before_and_what_is_afterwards_answers_tvms_annotator():
    tvm.ir.register_op_attr("exp", "target.acme_late")(lambda call: True)
    assert annotated("acme_late") == {"exp"}
    convoy.relay.partition(network(), codegen="acme_late", refuse=refuse)
    assert annotated("acme_late") == {"exp"}
    tvm.ir.register_op_attr("sqrt", "target.acme_late")(lambda call: True)
    assert annotated("acme_late") == {"exp", "sqrt"}
    convoy.relay.partition(network(), codegen="acme_late", refuse=refuse)
    assert annotated("acme_late") == {"exp", "sqrt"}


@tvm.ir.transform.module_pass(opt_level=0, name="NoteEverywhere")
def note(mod: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
    """A pass of somebody's that changes every function."""
    return tvm.IRModule({var: f.with_attr("noted", "yes") for var, f in mod.functions.items()})


def test_the_guard_keeps_passes_out_of_its_function():
    cut = convoy.relay.partition(network(), codegen="acme", refuse=refuse)
    with (
        pytest.raises(GuardError, match="NoteEverywhere"),
        tvm.transform.PassContext(instruments=[convoy.relay.NoTouch()]),
    ):
        note(cut)
    after = convoy.relay.no_touch(note)(cut)
    (before,) = external_functions(cut, "acme").values()
    (kept,) = external_functions(after, "acme").values()
    tvm.ir.assert_structural_equal(before, kept)
    assert after["main"].attrs["noted"] == "yes"


def conv_relu(seed: int) -> tvm.IRModule:
    return module(
        lambda x: op.nn.relu(op.nn.conv2d(x, weight(8, 8, 3, 3, seed=seed), padding=(1, 1))), IMAGE
    )


def test_two_models_of_one_shape_in_one_process():
    # TVM gives their functions the same name; each calls its own weights, and TVM keeps none
    for seed in (1, 2):
        before = conv_relu(seed)
        cut = convoy.relay.partition(before, codegen="acme", refuse=refuse)
        library = relay.build(cut, target="llvm")
        (got,), (want,) = run(library, random(*IMAGE)), run_plain(before, random(*IMAGE))
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
        assert not library.get_params()


def test_it_computes_every_image_of_a_batch():
    before = module(
        lambda x: op.nn.relu(op.add(op.nn.conv2d(x, weight(8, 8, 3, 3), padding=(1, 1)), x)),
        (3, *IMAGE[1:]),
    )
    cut = convoy.relay.partition(before, codegen="acme", refuse=refuse)
    assert len(external_functions(cut, "acme")) == 1
    x = random(3, *IMAGE[1:])
    (got,), (want,) = run(relay.build(cut, target="llvm"), x), run_plain(before, x)
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def test_its_functions_and_convoys_in_one_library(tmp_path):
    # exported and loaded again
    before = network()
    cut = convoy.relay.partition(before, codegen="acme", refuse=refuse)
    library = relay.build(convoy.relay.partition(cut, Options(merge=False)), target="llvm")
    path = tmp_path / "both.so"
    library.export_library(path)
    loaded = tvm.contrib.graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
    loaded.set_input("x0", random(*IMAGE))
    loaded.run()
    (want,) = run_plain(before, random(*IMAGE))
    assert np.abs(loaded.get_output(0).numpy() - want).max() <= 1e-5 * np.abs(want).max()


def test_a_name_that_does_not_stand_for_its_content_is_an_error(monkeypatch):
    # TVM's name, as in the other door: the second model would have computed with the weights of the first
    monkeypatch.setitem(compile_function.__wrapped__.__globals__, "content_hash", lambda graph: "same")
    for seed in (3, 4):
        cut = convoy.relay.partition(conv_relu(seed), codegen="acme", refuse=refuse)
        if seed == 3:
            relay.build(cut, target="llvm")
            continue
        with pytest.raises(
            ToolchainError, match="link: C function 'acme_same': expected a name that stands"
        ):
            relay.build(cut, target="llvm")
