"""A model whose every name is an attack is compiled, explained, refused and run, and does nothing else."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hostile import CLOSINGS, CODE, NAMES, SCREEN, hostile_model

from building import Builder
from command import run_convoy
from convoy import backend
from convoy.bench.accuracy import reference_outputs
from convoy.errors import LoweringError, ModelError
from convoy.graph.ops import Unary
from convoy.target import Target


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model; its code would write ``ran`` there."""
    folder = tmp_path_factory.mktemp("attacked")
    onnx.save(hostile_model(NAMES, str(folder / "ran")), folder / "model.onnx")
    return folder


def printable(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.slow
def test_it_is_compiled_run_and_shown_like_any_other(
    attacked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(attacked)
    model, library = attacked / "model.onnx", attacked / "model.so"
    made = run_convoy(capsys, monkeypatch, "compile", model, "-o", library, "--keep", attacked / "c")
    assert (made.code, "Traceback" in made.err) == (0, False), made.err
    from convoy.deploy.runner import Runner

    x = np.random.default_rng(1).standard_normal((2, 4, 6, 6)).astype(np.float32)
    session = onnxruntime.InferenceSession(model)
    (expected,) = session.run(None, {session.get_inputs()[0].name: x})
    (found,) = Runner(library).run([x])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    for unit in (attacked / "c").glob("*.c"):
        assert unit.read_text().isascii()
    for arguments in (["--source"], ["--json"], []):
        shown = run_convoy(capsys, monkeypatch, "explain", model, *arguments)
        assert shown.code == 0, shown.err
        assert printable(shown.out)
        assert printable(shown.err)
    assert sorted(os.listdir(attacked)) == ["c", "model.onnx", "model.so"]


@pytest.mark.parametrize("name", SCREEN, ids=[str(i) for i in range(len(SCREEN))])
def test_an_error_that_quotes_a_name_is_one_harmless_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = hostile_model((name, "b", "c", "d"), "ran")
    model.graph.node[1].op_type = f"Op{name}"
    folder = tmp_path / name.replace("/", "_")
    folder.mkdir()
    onnx.save(model, folder / "m.onnx")
    for arguments in (["explain", folder / "m.onnx"], ["explain", folder / "none.onnx"]):
        shown = run_convoy(capsys, monkeypatch, *arguments)
        assert shown.code == 1
        assert printable(shown.err)
        told = [line for line in shown.err.splitlines() if not line.startswith("compiling")]
        assert len(told) == 1, shown.err
        assert told[0].startswith("error: import: ")


def test_the_log_of_the_reference_shows_no_name(capfd: pytest.CaptureFixture[str]) -> None:
    # known at run time only: what ONNX Runtime logs then names the node
    node = onnx.helper.make_node("Reshape", ["x", "s"], ["y"], name=SCREEN[0])
    values = [
        onnx.helper.make_tensor_value_info("x", 1, [1, 4]),
        onnx.helper.make_tensor_value_info("s", 7, [1]),
        onnx.helper.make_tensor_value_info("y", 1, ["n"]),
    ]
    graph = onnx.helper.make_graph([node], "g", values[:2], values[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ModelError) as caught:
        reference_outputs(model, {"x": np.zeros((1, 4), np.float32), "s": np.array([5])})
    assert "Reshape" in str(caught.value)
    assert printable(str(caught.value))
    assert capfd.readouterr().err == ""


def test_a_terminal_shows_names_without_obeying_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from convoy.cli import console
    from convoy.report.decision import Report
    from convoy.report.text import describe_report

    report = Report()
    for name in NAMES:
        report.add(f"conv2d {name}", "annotate", "left", f"expected peace, got {name}")
    screen = console._Screen(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    monkeypatch.setattr(console, "_stdout", screen)
    monkeypatch.setattr(console, "_stderr", screen)
    console.show(describe_report(report), soft_wrap=True)
    console.print_error("\n".join(NAMES))
    for name in NAMES:
        console.say(name)
        console.print_warning(name)
        console.show(name)  # even of what nobody made harmless
    with console.progress("title [red]x[/red]") as tell:
        for name in NAMES:
            tell(name)
    printed = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "[red]x[/red]" in printed
    assert "[link=http://x]y[/link]" in printed
    own = ("\x1b[?25l", "\x1b[?25h", "\x1b[1A", "\x1b[2K", "\r")  # of the spinner
    for sequence in own:
        printed = printed.replace(sequence, "")
    assert printable(printed)


def test_a_region_whose_symbol_is_no_name_is_refused() -> None:
    b = Builder([1, 8, 4, 4])
    graph = b.graph(b.add(Unary, "x0", kind="relu"))
    for symbol in (*(f"f{end} {CODE}" for end in CLOSINGS), "a b", "f;g", "f\n"):
        with pytest.raises(LoweringError, match="global_symbol: expected letters, digits and underscores"):
            backend.generate(graph, symbol, Target("portable"))
