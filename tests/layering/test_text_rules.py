"""Nobody writes text from outside but through ``convoy.text``: held by parsing every module."""

from __future__ import annotations

from pathlib import Path

import pytest
from text_rules import CALLS, FOREIGN, HOMES, violations, without_encoding

PACKAGE = Path(__file__).parents[2] / "python" / "convoy"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_each_module_writes_text_from_outside_by_its_function(path: Path) -> None:
    assert violations(path.relative_to(PACKAGE).as_posix(), path.read_text()) == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_each_module_reads_and_writes_files_in_utf_8(path: Path) -> None:
    # else the locale decides, and in some of them the package cannot read its own sources
    assert without_encoding(path.read_text("utf-8")) == []


def test_a_file_in_the_encoding_of_the_locale_is_found() -> None:
    named = 'p.read_text("utf-8")\np.write_text(text, encoding="utf-8")\nopen(p, "rb")\np.read_bytes()\n'
    assert without_encoding(named) == []
    unnamed = "p.read_text()\nf(p).write_text(text)\nopen(p)\nopen(p, 'w')\n"
    assert without_encoding(unnamed) == [1, 2, 3, 4]


def test_the_rules_name_modules_that_are_there() -> None:
    for path in {p for table in (HOMES, CALLS) for row in table.values() for p in row} | set(FOREIGN):
        assert (PACKAGE / path).exists(), path


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("plan/fuse.py", "print(name)"),
        ("cli/check.py", "console.print(name)"),
        ("cli/check.py", "import rich"),
        ("cli/bench.py", "from rich.table import Table"),
        ("cli/bench.py", "from rich import print as show"),
        ("report/text.py", "Text.from_markup(name)"),
        ("report/text.py", "from jinja2 import Environment"),
        ("cli/console.py", "from rich.markup import render"),
        ("cli/console.py", "Console(markup=True)"),
        ("cli/run.py", "import sys\nsys.stderr.write(name)"),
        ("cli/run.py", "import sys\nout = sys.stdout"),
        ("cli/run.py", "from sys import stderr"),
        ("cli/run.py", "import typer\ntyper.echo(name)"),
        ("relax/lower.py", "import logging"),
        ("relax/lower.py", "import warnings\nwarnings.warn(f'{name} is odd', UserWarning)"),
        ("toolchain/compiler.py", "import subprocess"),
        ("toolchain/compiler.py", "def f():\n    from subprocess import run"),
        ("toolchain/compiler.py", "import importlib\nimportlib.import_module('subprocess')"),
        ("toolchain/process.py", "import subprocess\nsubprocess.run(command, shell=True)"),
        ("bench/pnnx.py", "import os\nos.system(command)"),
        ("bench/pnnx.py", "import os\nos.execvp(command, [])"),
        ("tune/store.py", "import pickle"),
        ("tune/store.py", "import json\nfile.write(json.dumps(times))"),
        ("cli/run.py", "import numpy as np\nnp.load(path)"),
        ("cli/run.py", "import numpy as np\nnp.load(path, allow_pickle=True)"),
        ("graph/graph.py", "eval(name)"),
        ("codegen/emit.py", "text = f'/* {step} */'"),
        ("codegen/emit.py", "text = f'int x; /* a {c_name(step)} */'"),
        ("codegen/emit.py", "text = f'/* {c_comment(step)!r} */'"),
        ("codegen/emit.py", "T = '/* {note} */'\nT.format(note=step)"),
        ("codegen/emit.py", "T = '/* {note} */'\nT.format(**given)"),
        ("codegen/emit.py", "text = '/* ' + step + ' */'"),
        ("codegen/emit.py", "text = '/* %s */' % step"),
        ("codegen/kernels.py", "text = step.note"),
        ("deploy/abi.py", "text = f'{tensor.name}'"),
        ("bench/text.py", "text = f'- {model}'"),
        ("bench/picture.py", "axes.annotate(model, (0, 0))"),
        ("toolchain/compiler.py", "text = f'.incbin {path}'"),
        ("toolchain/compiler.py", "text = f'.incbin \"{c_string(path)}\"'"),
    ],
    ids=str,
)
def test_what_breaks_a_rule_is_found(path: str, source: str) -> None:
    assert violations(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("cli/console.py", "from rich.console import Console\nConsole(markup=False).print(x)"),
        ("cli/app.py", "import sys, os\nos.dup2(a, sys.stdout.fileno())"),
        ("toolchain/process.py", "import subprocess\nsubprocess.Popen(command, text=True)"),
        ("relax/lower.py", "import warnings\nwarnings.warn(line(f'{name} is odd'), UserWarning)"),
        (
            "codegen/emit.py",
            "text = f'/* {c_comment(step.note)} */ int {name}; /* {a:d} of {x:.1f} */'",
        ),
        (
            "codegen/emit.py",
            "T = '/* {note} {n:d} */ {body}'\nT.format(note=c_comment(a), n=1, body=b)",
        ),
        ("deploy/abi.py", "text = f'{{{c_string(line(tensor.name))}}}'"),
        ("bench/picture.py", "for model in results:\n    axes.annotate(caption(model), (0, 0))"),
        ("toolchain/compiler.py", "text = f'.incbin {c_string(path)}'"),
        ("cli/run.py", "import numpy as np\nnp.load(path, allow_pickle=False)"),
    ],
    ids=str,
)
def test_what_keeps_them_is_not(path: str, source: str) -> None:
    assert violations(path, source) == []
