"""Who may import whom (docs/architecture.md), held by parsing every import and include."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "convoy"
CSRC = ROOT / "csrc"

FREE = {
    "convoy.errors", "convoy.log", "convoy.options", "convoy.pipes", "convoy.report.decision",
    "convoy.text", "convoy.version",
}  # fmt: skip
"""Modules every room may use."""
RANKS = {
    "graph": 0, "target": 0, "zoo": 0, "onnx_file": 0, "installed": 0,
    "ops": 1,
    "fold": 2, "plan": 2, "offload": 2,
    "codegen": 3, "toolchain": 3,
    "kernels": 4,
    "deploy": 5, "backend": 5,
    "tune": 6,
    "relax": 7, "relay": 7,
    "report": 8, "onnx": 8, "torch": 8,
    "bench": 9,
    "cli": 10, "__main__": 11,
}  # fmt: skip
"""A room imports only rooms of a lower rank, and itself; equal ranks do not know each other."""
SEES_TVM = {"relax", "relay", "deploy"}


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    """``convoy.plan.fuse`` is in the room ``plan``; the package's own ``__init__`` has none."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(package: str, source: str) -> set[str]:
    """Every module a file of ``package`` imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join([*above, *([node.module] if node.module else [])])
            names = {f"{name}.{alias.name}" for alias in node.names}
            found.update({name} if name not in ("convoy", "convoy.report") else names)
    return found


def violations(module: str, source: str, package: str = "") -> list[str]:
    """What ``module`` imports but may not, in words."""
    room, found = room_of(module), []
    for name in sorted(imported_modules(package or module.rpartition(".")[0], source)):
        package, theirs = name.split(".")[0], room_of(name)
        if package in ("tvm", "tvm_ffi") and room not in SEES_TVM | {""}:
            found.append(f"{module} imports {name}: only relax, relay and deploy see TVM")
        if package != "convoy" or name in FREE or name == "convoy" or theirs == room:
            continue
        if room == "":
            continue  # the package's own __init__ is the front door
        if theirs not in RANKS:
            continue  # a name that convoy/__init__.py itself offers
        if module in FREE:
            found.append(f"{module} imports {name}: it is used by all and may import none of us")
        elif room not in RANKS:
            found.append(f"{module}: no rank is given for the room {room!r}")
        elif RANKS[theirs] >= RANKS[room]:
            found.append(f"{module} imports {name}: {theirs} is not below {room}")
    return found


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_module_imports_only_rooms_below_it(path: Path) -> None:
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    assert violations(module, path.read_text(), package) == []


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, though over others, or for their types alone."""
    reached: dict[str, set[str]] = {}
    for module in imports:
        found, waiting = set[str](), [module]
        while waiting:
            new = imports[waiting.pop()] - found
            found |= new
            waiting += new
        reached[module] = found
    rings = {tuple(sorted(m for m in reached[a] if a in reached[m])) for a in imports if a in reached[a]}
    return sorted(map(list, rings))


@pytest.mark.slow
def test_no_modules_import_each_other() -> None:
    modules = {module_of(path): path for path in python_files()}
    imports: dict[str, set[str]] = {module: set() for module in modules}
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                imports[module] |= {name if name in modules else str(node.module) for name in names}
            elif isinstance(node, ast.Import):
                imports[module] |= {alias.name for alias in node.names}
        imports[module] = imports[module] & modules.keys() - {module}
    assert circles(imports) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_every_room_has_a_rank() -> None:
    rooms = {room_of(module_of(path)) for path in python_files()} - {""}
    rooms -= {name.split(".")[1] for name in FREE if name.count(".") == 1}
    assert rooms - {"report"} <= set(RANKS)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("convoy.plan.fuse", "import tvm"),
        ("convoy.graph.ops", "def f():\n    from tvm import relax"),
        ("convoy.plan.plan", "from convoy.codegen import emit"),
        ("convoy.codegen.emit", "from convoy.kernels.registry import emit_step"),
        ("convoy.codegen.emit", "from convoy.toolchain.compiler import compile_object"),
        ("convoy.relax.fold", "from convoy.relay import fold"),
        ("convoy.toolchain.cache", "from convoy import cli"),
        ("convoy.backend", "import convoy.relax.compile"),
        ("convoy.backend", "from convoy.tune.tuner import Tuner"),
        ("convoy.plan.fuse", "from ..codegen import emit"),
        ("convoy.report.decision", "from convoy.graph import ops"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    assert violations(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("convoy.relax.codegen", "import tvm\nfrom convoy import backend\nfrom convoy.deploy import abi"),
        ("convoy.plan.plan", "from convoy.graph.ops import Conv2d\nfrom convoy.target import Target"),
        ("convoy.relax.importer.load", "from ...report.decision import Report\nfrom .read import read"),
        ("convoy.cli.app", "import convoy\nfrom convoy.errors import ConvoyError"),
    ],
)
def test_an_allowed_import_is_not(module: str, source: str) -> None:
    assert violations(module, source) == []


INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
C_ALLOWED = {
    "include": ("convoy/",),
    "simd": ("convoy/", "simd/"),
    "kernels": ("convoy/", "simd/", "kernels/"),
}
"""First folders a header of each folder may include from; system headers are free."""


def c_files() -> list[Path]:
    return sorted(p for p in CSRC.rglob("*.[ch]") if p.relative_to(CSRC).parts[0] in C_ALLOWED)


def own_folder(include: str, path: Path) -> str | None:
    """The folder of ``csrc`` an include names, or None for the system's."""
    for base in (CSRC, CSRC / "include", path.parent):
        if (base / include).is_file():
            parts = (base / include).resolve().relative_to(CSRC).parts
            return "convoy/" if parts[0] == "include" else f"{parts[0]}/"
    return None


@pytest.mark.parametrize("path", c_files(), ids=lambda path: str(path.relative_to(CSRC)))
def test_kernels_include_only_simd_and_the_c_interface(path: Path) -> None:
    allowed = C_ALLOWED[path.relative_to(CSRC).parts[0]]
    includes = INCLUDE.findall(path.read_text())
    assert [i for i in includes if own_folder(i, path) not in (None, *allowed)] == []
    assert [i for i in includes if i.startswith(("tvm", "dlpack"))] == [], "kernels never see TVM"


def scripts_of(source: str) -> list[str]:
    """The functions of TVMScript that a module makes when it is imported."""
    return [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        and any("prim_func" in ast.unparse(d) for d in node.decorator_list)
    ]


@pytest.mark.parametrize("path", python_files(), ids=module_of)
def test_no_import_makes_a_function_of_tvmscript(path: Path) -> None:
    # it reads the sources of all its callers, which took a quarter of a second of each command
    assert not scripts_of(path.read_text())


def test_one_made_by_an_import_is_found() -> None:
    made = "@T.prim_func(private=True)\ndef find(x: T.handle):\n    pass\n"
    assert scripts_of(made) == ["find"]
    assert not scripts_of("def make():\n" + "".join(f"    {line}\n" for line in made.splitlines()))
