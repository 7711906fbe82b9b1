"""Docstrings say what a thing is, in numpydoc's form; ruff's D rules hold the rest of that form."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python" / "convoy"
TREES = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring: of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def parameters(node: Documented) -> set[str]:
    """Names that may stand under Parameters: those of a function, of a class's fields, of ``__init__``."""
    if not isinstance(node, ast.ClassDef):
        return {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
    found = set()
    for part in node.body:
        match part:
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.FunctionDef(name="__init__"):
                found |= parameters(part)
    return found


def documented(docstring: str) -> list[str]:
    """The names in the section Parameters, without stars."""
    found = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+$|\Z)", docstring, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^\S.*$", found[1], re.MULTILINE) if found else []
    return [name.lstrip("*") for entry in entries for name in entry.partition(" : ")[0].split(", ")]


def unknown_parameters(tree: ast.Module) -> list[str]:
    return [
        f"{node.name}: {name}"
        for node in ast.walk(tree)
        if isinstance(node, Documented)
        for name in documented(ast.get_docstring(node) or "")
        if name not in parameters(node)
    ]


def test_no_docstring_begins_with_of() -> None:
    found = {
        f"{name}:{line}: {text.splitlines()[0]}"
        for name, tree in TREES.items()
        for line, text in docstrings(tree)
        if re.match(r"\s*of\b", text, re.IGNORECASE)
    }
    assert not found, "\n".join(sorted(found))


def test_documented_parameters_exist() -> None:
    found = [f"{name}: {unknown}" for name, tree in TREES.items() for unknown in unknown_parameters(tree)]
    assert not found, "\n".join(found)


def test_parameters_that_do_not_exist_are_found() -> None:
    source = (
        'def f(a: int, *b: int):\n    """Do.\n\n    Parameters\n    ----------\n    a, {} : int\n    """\n'
    )
    right, wrong = (ast.parse(source.format(name)) for name in ("b", "c"))
    assert (unknown_parameters(right), unknown_parameters(wrong)) == ([], ["f: c"])
