"""Docstrings say what a thing is, in numpydoc's form; ruff's D rules hold the rest of that form."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python" / "convoy"
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def trees() -> dict[str, ast.Module]:
    """What Convoy's files hold, by their paths."""
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}


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


def entries(docstring: str, section: str) -> list[str]:
    """The entries of a section, each with its description."""
    found = re.search(rf"^{section}\n-+\n(.*?)(?=^\w+\n-+$|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\S.*\n?(?:^ .*\n?|^\n)*", found[1], re.MULTILINE) if found else []


def documented(docstring: str) -> list[str]:
    """The names in the section Parameters, without stars."""
    names = [entry.splitlines()[0].partition(" : ")[0] for entry in entries(docstring, "Parameters")]
    return [name.lstrip("*") for several in names for name in several.split(", ")]


def misshaped(tree: ast.Module) -> list[str]:
    """Entries that are no names with a description on lines of its own."""
    names = r"\*{0,2}\w+(, \*{0,2}\w+)*"
    forms = {"Parameters": rf"{names}( : .+)?\n +\S", "Raises": r"[\w.]+(, [\w.]+)*(\n +\S|$)"}
    return [
        entry.splitlines()[0]
        for node in ast.walk(tree)
        if isinstance(node, Documented)
        for section, form in forms.items()
        for entry in entries(ast.get_docstring(node) or "", section)
        if not re.match(form, entry)
    ]


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
        for name, tree in trees().items()
        for line, text in docstrings(tree)
        if re.match(r"\s*of\b", text, re.IGNORECASE)
    }
    assert not found, "\n".join(sorted(found))


def test_documented_parameters_exist() -> None:
    found = [f"{name}: {unknown}" for name, tree in trees().items() for unknown in unknown_parameters(tree)]
    assert not found, "\n".join(found)


def test_parameters_that_do_not_exist_are_found() -> None:
    source = (
        'def f(a: int, *b: int):\n    """Do.\n\n    Parameters\n    ----------\n    a, {} : int\n    """\n'
    )
    right, wrong = (ast.parse(source.format(name)) for name in ("b", "c"))
    assert (unknown_parameters(right), unknown_parameters(wrong)) == ([], ["f: c"])


def test_entries_have_a_name_and_a_description() -> None:
    found = [f"{name}: {entry}" for name, tree in trees().items() for entry in misshaped(tree)]
    assert not found, "\n".join(found)


def test_entries_in_another_form_are_found() -> None:
    source = 'def f(a):\n    """Do.\n\n    Parameters\n    ----------\n    {}\n    """\n'
    right, wrong = (
        ast.parse(source.format(entry)) for entry in ("a : int\n        First.", "a : the first")
    )
    assert (misshaped(right), misshaped(wrong)) == ([], ["a : the first"])
