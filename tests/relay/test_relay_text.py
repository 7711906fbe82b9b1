"""Names in a Relay module do nothing, wherever they are written; ``tests/text`` has the same of Relax."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from relay_modules import random
from tvm import relay
from tvm.contrib import graph_executor

from convoy.errors import ConvoyError
from convoy.options import Options
from convoy.relay import partition_for_convoy, using
from convoy.report.decision import Report
from convoy.report.text import describe_report

sys.path.insert(0, str(Path(__file__).parents[1] / "text"))
from hostile import NAMES


def hostile_module(names: list[str]) -> tvm.IRModule:
    """A chain of ops whose spans and inputs have ``names``: [1, 4, 6, 6] → [1, 4, 6, 6]."""
    x = body = relay.var(names[0] or "x", shape=(1, 4, 6, 6))
    for i, name in enumerate(names):
        span = tvm.ir.Span(tvm.ir.SourceName(name), 0, 0, 0, 0)
        weight = relay.const(random(4, 4, 1, 1, seed=i))
        made = (relay.nn.conv2d(body, weight, channels=4, kernel_size=(1, 1)), relay.tanh(body))[i % 2]
        body = relay.Call(made.op, made.args, made.attrs, made.type_args, span)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))


@pytest.mark.slow
def test_hostile_names_are_compiled_run_and_shown_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from io import StringIO

    from rich.console import Console

    monkeypatch.chdir(tmp_path)
    names = [name.replace("RAN", str(tmp_path / "ran")) for name in (*NAMES[:16], *NAMES[17::5])]
    module, report = hostile_module(names), Report()
    with using(Options(keep=tmp_path / "c"), report):
        library = relay.build(partition_for_convoy(module), target="llvm")
    library.export_library(str(tmp_path / "net.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "net.so"))
    runner = graph_executor.GraphModule(loaded["default"](tvm.cpu()))
    x = random(1, 4, 6, 6, seed=99)
    runner.set_input(0, tvm.nd.array(x))
    runner.run()
    found = runner.get_output(0).numpy()
    plain = relay.create_executor("graph", module, tvm.cpu(), "llvm").evaluate()(x).numpy()
    np.testing.assert_allclose(found, plain, rtol=1e-3, atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "net.so"]
    for unit in (tmp_path / "c").glob("*.c"):
        assert unit.read_text().isascii()
    screen = Console(file=StringIO(), width=160)
    screen.print(describe_report(report, source=True), soft_wrap=True)
    assert all(line.isprintable() for line in screen.file.getvalue().split("\n"))


@pytest.mark.parametrize("name", ["a\x1b[2J", "[red]x[/red]", "a\nerror: all is well"])
def test_an_error_that_quotes_a_name_is_one_line(name: str) -> None:
    with pytest.raises(ConvoyError, match="node ") as caught:
        partition_for_convoy(hostile_module(["x", name]), exclude=f"{name}?")
    assert str(caught.value).isprintable()
