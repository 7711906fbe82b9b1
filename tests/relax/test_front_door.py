"""The names at the package's top: lazy, typed, and each option once."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import tvm

import convoy
from command import tiny_model
from convoy.errors import ModelError
from convoy.options import Options

ROOT = Path(__file__).parents[2]


def run_python(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_names_are_listed_and_found() -> None:
    assert set(convoy.__all__) <= set(dir(convoy))
    assert {"relax", "relay", "zoo"} <= set(dir(convoy))
    assert not [name for name in dir(convoy) if name.startswith("_") and not name.endswith("__")]
    assert not {"annotations", "importlib", "sys", "Any"} & set(dir(convoy)), "what it is written with"
    for name in convoy.__all__:
        assert getattr(convoy, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'compille'"):
        convoy.compille  # noqa: B018


WITHOUT_TVM = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.startswith("tvm") else find(name, *rest)
"""


@pytest.mark.parametrize("before", ["", WITHOUT_TVM], ids=["TVM", "no TVM"])
def test_importing_is_cheap(before: str) -> None:
    heavy = "tvm", "tvm_ffi", "numpy", "onnx", "rich", "torch"
    assert run_python(
        f"{before}import sys, convoy; convoy.Report(); convoy.Options(threads=2)\n"
        f"print('compile' in dir(convoy), *[name for name in {heavy} if name in sys.modules])"
    ) == ["True"]


def test_without_tvm_the_names_that_need_it_say_so() -> None:
    program = f"""{WITHOUT_TVM}
import convoy
for name in ("compile", "load", "Runner", "relax"):
    try:
        getattr(convoy, name)
    except ImportError as error:
        print(error)
"""
    assert (
        run_python(program)
        == ["import: convoy.relax: expected a modern TVM (Relax), got no TVM at all; install apache-tvm"]
        * 4
    )


def test_each_option_is_a_keyword_of_compile() -> None:
    keywords = inspect.signature(convoy.compile).parameters
    assert {option.name for option in fields(Options)} <= set(keywords)


@pytest.mark.slow
def test_keywords_come_on_top_of_options(tmp_path: Path) -> None:
    executable = convoy.compile(
        tiny_model(),
        options=Options(threads=2, strict=True, merge=True),
        merge=False,
        disabled_ops="nn.softmax",
        strict=False,
        keep=tmp_path,
    )
    assert isinstance(executable, tvm.relax.VMExecutable)
    assert [d.node.split()[0] for d in executable.report.refusals] == ["nn.softmax"]
    assert len(executable.report.regions) > 1
    assert (tmp_path / "settings.c").read_text().endswith("convoy_compiled_threads = 2;\n")


@pytest.mark.parametrize(
    ("model", "given", "kind"),
    [
        (tiny_model(), {"example_inputs": ()}, "a network of PyTorch"),
        (tiny_model(), {"dynamic_shapes": ()}, "a network of PyTorch"),
        (tvm.IRModule(), {"example_inputs": ()}, "a network of PyTorch"),
        (tvm.IRModule(), {"shapes": {"x": (1, 3, 8, 8)}}, "an ONNX model"),
    ],
)
def test_what_says_sizes_of_another_kind_of_model_is_refused(
    model: Any, given: dict[str, Any], kind: str
) -> None:
    (name,) = given
    with pytest.raises(ModelError, match=rf"^import: {name}: expected it with {kind} alone, got another"):
        convoy.compile(model, **given)


def test_the_report_given_is_the_one_that_comes_back() -> None:
    report = convoy.Report()
    executable = convoy.compile(tiny_model(), report=report)
    assert executable.report is report
    assert "1 region, 0 left to TVM" in repr(executable)


def test_the_log_has_steps_and_decisions(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "convoy"):
        convoy.compile(tiny_model())
    levels = {record.levelno: record.getMessage() for record in caplog.records if record.name == "convoy"}
    assert set(levels) == {logging.INFO, logging.DEBUG}
    assert "0 left to TVM" in levels[logging.INFO]
    assert sum("nn.conv2d conv0: taken" in record.getMessage() for record in caplog.records) == 1


PROGRAM = """\
from pathlib import Path

import convoy

executable = convoy.compile("net.onnx", accuracy="direct", exclude={"a"}, keep=Path("x"))
reveal_type(executable)
reveal_type(executable.report)
reveal_type(convoy.load("net.so"))
reveal_type(convoy.relax.using(convoy.Options(threads=1)))
convoy.compile("net.onnx", accuracy="slow")
convoy.compille("net.onnx")
"""


@pytest.mark.slow
def test_mypy_sees_the_types_and_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    cache = ROOT / ".mypy_cache" / "front"
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    found = [line for line in done.stdout.splitlines() if line.startswith("program.py")]
    expected = [
        'Revealed type is "convoy.relax.executable.Executable"',
        'Revealed type is "convoy.report.decision.Report"',
        'Revealed type is "convoy.deploy.runner.Runner"',
        'Revealed type is "contextlib.AbstractContextManager[None',
        'Argument "accuracy" to "compile" has incompatible type',
        'has no attribute "compille"',
    ]
    assert len(found) == len(expected), done.stdout
    for line, part in zip(found, expected, strict=True):
        assert part in line
