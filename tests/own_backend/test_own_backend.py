"""Somebody else's backend uses Convoy's folds, patterns, partitioning, guard and reasons."""

from __future__ import annotations

import ast
import inspect

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import convoy
from convoy.errors import ConvoyError, GuardError, RefusedError
from convoy.options import Options
from convoy.relax.no_touch import marked_functions
from convoy.report.decision import Report
from own_backend.acme import refuse
from pages import DOCS, block

IMAGE = (1, 8, 12, 12)


def network(image: tuple[int, ...] = IMAGE) -> IRModule:
    """conv2d 3x3 → batch norm → relu → conv2d 3x3 → batch norm → add → relu → conv2d 1x1 → sigmoid."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor(image, "float32"))

    def constant(*shape: int) -> relax.Expr:
        return relax.const(rng.uniform(0.1, 0.5, shape).astype(np.float32), "float32")

    def conv_and_norm(data: relax.Expr) -> relax.Var:
        conv = builder.emit(relax.op.nn.conv2d(data, constant(8, 8, 3, 3), padding=1))
        norm = relax.op.nn.batch_norm(conv, *(constant(8) for _ in range(4)), axis=1, training=False)
        return builder.emit(relax.TupleGetItem(builder.emit(norm), 0))

    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(conv_and_norm(x)))
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(conv_and_norm(y), x))))
            y = builder.emit(relax.op.nn.conv2d(y, constant(4, 8, 1, 1)))
            y = builder.emit_output(builder.emit(relax.op.sigmoid(y)))
        builder.emit_func_output(y)
    return builder.get()


def partitioned(
    report: Report | None = None, options: Options | None = None, image: tuple[int, ...] = IMAGE
) -> IRModule:
    """The network with its batch norms folded and acme's regions cut out."""
    module = convoy.relax.fold()(network(image))
    return convoy.relax.partition(options, report, codegen="acme", refuse=refuse)(module)


def run(module: IRModule, image: tuple[int, ...] = IMAGE) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal(image).astype(np.float32)
    executable = tvm.compile(module, target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def test_the_page_shows_what_is_tested_here() -> None:
    (shown,) = ast.parse(block(DOCS / "your-own-backend.md", "Say what you take", "python")).body
    (tested,) = ast.parse(inspect.getsource(refuse)).body
    assert isinstance(tested, ast.FunctionDef)
    del tested.body[0]  # its docstring: the page says it
    assert ast.dump(shown) == ast.dump(tested)


def test_its_regions_hold_what_it_takes_with_batch_norms_folded() -> None:
    (function,) = marked_functions(partitioned()).values()
    assert function.attrs["Codegen"] == "acme"
    assert str(function.attrs["global_symbol"]).startswith("acme_")
    text = function.script()
    assert text.count("R.nn.conv2d(") == 2
    assert "batch_norm" not in text
    assert "sigmoid" not in text


@pytest.mark.slow
def test_tvm_runs_the_network_with_its_kernels() -> None:
    module = relax.transform.RunCodegen()(partitioned())
    expected = run(network())
    np.testing.assert_allclose(run(module), expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_it_computes_every_image_of_a_batch() -> None:
    images = (3, *IMAGE[1:])
    module = relax.transform.RunCodegen()(partitioned(image=images))
    expected = run(network(images), images)
    np.testing.assert_allclose(run(module, images), expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_convoy_takes_what_it_leaves() -> None:
    module = convoy.relax.partition(Options(merge=False))(partitioned())
    owners = sorted(str(f.attrs["Codegen"]) for f in marked_functions(module).values())
    assert owners == ["acme", "convoy"]
    expected = run(network())
    found = run(relax.transform.RunCodegen()(module))
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_each_op_it_leaves_has_its_reason() -> None:
    report = Report()
    partitioned(report)
    assert [d.reason for d in report.refusals] == [
        "acme has 3x3 convolutions only, this is 1x1",
        "acme has no relax.sigmoid",
    ]


@pytest.mark.parametrize("nothing", [None, "", False])
def test_a_refusal_of_nothing_is_none(nothing: object) -> None:
    everything = convoy.relax.partition(codegen="acme", refuse=lambda _: nothing)  # type: ignore[arg-type,return-value]
    assert len(marked_functions(everything(network()))) == 1


def test_a_refusal_without_words_is_an_error() -> None:
    partition = convoy.relax.partition(codegen="acme", refuse=lambda _: True)  # type: ignore[arg-type,return-value]
    with pytest.raises(ConvoyError, match="refuse: expected a reason in words or None, got True; return a"):
        partition(network())


@pytest.mark.parametrize("name", ["", "acme.x", "default"])
def test_a_codegen_that_is_no_name_is_an_error(name: str) -> None:
    with pytest.raises(
        ConvoyError, match=r"partition: codegen .*: expected letters, digits and underscores"
    ):
        convoy.relax.partition(codegen=name, refuse=refuse)


def test_strict_raises_its_first_reason() -> None:
    with pytest.raises(RefusedError, match="acme has 3x3 convolutions only, this is 1x1"):
        partitioned(options=Options(strict=True))


def test_the_guard_keeps_passes_out_of_its_functions() -> None:
    module = partitioned()
    before = marked_functions(module)
    decompose = relax.transform.LegalizeOps()
    with (
        pytest.raises(GuardError, match="LegalizeOps"),
        tvm.transform.PassContext(instruments=[convoy.relax.NoTouch()]),
    ):
        decompose(module)
    after = convoy.relax.no_touch(decompose)(module)
    assert marked_functions(after) == before
    assert "R.nn.conv2d" not in after["main"].script(), "the pass did its work outside"
