"""What a module writes where it may not, found in its source: text from outside is ``convoy.text``'s.

Each rule takes a module's path in the package and its syntax tree, and gives what breaks it, in words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from string import Formatter

CONSOLE, SHEET, PROCESS, TEXT = "cli/console.py", "report/sheet.py", "toolchain/process.py", "text.py"

HOMES = {
    "rich.console": {CONSOLE, SHEET, "report/text.py", "report/profile_text.py"},
    "rich.padding": {"report/text.py"},
    "rich.segment": {CONSOLE},
    "rich.table": {SHEET},
    "rich.text": {SHEET, "report/text.py"},
    "rich": set(),
    "subprocess": {PROCESS},
    "multiprocessing": {"bench/busy.py", "bench/worker.py", "bench/startup.py", "toolchain/temporary.py"},
    "pty": set(), "logging": {"log.py"}, "curses": set(),
    "pickle": set(), "marshal": set(), "shelve": set(), "dill": set(), "cloudpickle": set(),
    "joblib": set(), "html": {TEXT}, "xml": set(), "jinja2": {"report/pages/page.py"}, "string": set(),
}  # fmt: skip
"""Modules by which text reaches a terminal or another program, or objects come back from a file: who may
import them.  A module has the row of the longest name that begins its own."""

CALLS = {
    "print": set(), "input": set(), "breakpoint": set(), "eval": set(), "exec": set(),
    "os.system": set(), "os.popen": set(), "os.write": set(), "os.startfile": set(),
    "typer.echo": set(), "typer.secho": set(), "click.echo": set(), "click.secho": set(),
    "json.dumps": {TEXT}, "json.dump": set(),
    "warnings.showwarning": set(), "traceback.print_exc": set(), "traceback.print_exception": set(),
}  # fmt: skip
"""Functions, and who may call them.  ``os.exec…`` and ``os.spawn…`` nobody may."""

STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}

FOREIGN = {
    "codegen/": ({"note", "title"}, {"c_comment"}),
    "deploy/abi.py": ({"name"}, {"c_string", "line"}),
    "bench/text.py": ({"model", "reason", "cpu", "command"}, {"markdown", "markdown_code"}),
    "bench/picture.py": ({"model", "cpu"}, {"caption"}),
}
"""Where text from outside is written: its names there, and the functions it goes through."""


def violations(path: str, source: str) -> list[str]:
    """Every rule that a module breaks, in words."""
    tree = ast.parse(source)
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            child.parent = parent  # type: ignore[attr-defined]
    rules = (imports, calls, shells, warned, comments, foreign, assembler, streams)
    return [f"{path}:{node.lineno}: {what}" for rule in rules for node, what in rule(path, tree)]


Found = Iterator[tuple[ast.AST, str]]


def imports(path: str, tree: ast.AST) -> Found:
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and dotted(node.func) in ("__import__", "importlib.import_module"):
            names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        for name in names:
            rows = [row for row in HOMES if name == row or name.startswith(f"{row}.")]
            if rows and path not in HOMES[max(rows, key=len)]:
                yield node, f"only {sorted(HOMES[max(rows, key=len)]) or 'nobody'} may import {name}"


def calls(path: str, tree: ast.AST) -> Found:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        if re.match(r"os\.(exec|spawn|posix_spawn)", name) or path not in CALLS.get(name, {path}):
            yield node, f"{name} is not for this module"
        if name in ("np.load", "numpy.load") and not any(
            k.arg == "allow_pickle" and isinstance(k.value, ast.Constant) and k.value.value is False
            for k in node.keywords
        ):
            yield node, "np.load without allow_pickle=False"
        if isinstance(node.func, ast.Attribute) and node.func.attr == "print" and path != CONSOLE:
            yield node, "only the console prints"
        if isinstance(node.func, ast.Attribute) and node.func.attr == "from_markup":
            yield node, "markup is read from nothing"


def shells(path: str, tree: ast.AST) -> Found:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "shell":
            yield node, "no shell is used"
        if isinstance(node, ast.keyword) and node.arg in ("markup", "emoji") and not is_false(node.value):
            yield node, f"no {node.arg} is read"


def streams(path: str, tree: ast.AST) -> Found:
    """``sys.stdout`` is asked for its number, no more."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in STREAMS and dotted(node).startswith("sys."):
            use = node.parent  # type: ignore[attr-defined]
            asked = isinstance(use, ast.Attribute) and use.attr in ("fileno", "isatty")
            if path != CONSOLE and not asked:
                yield node, "only the console writes to a terminal"
        if isinstance(node, ast.ImportFrom) and node.module == "sys":
            for alias in node.names:
                if alias.name in STREAMS:
                    yield node, "only the console writes to a terminal"


def warned(path: str, tree: ast.AST) -> Found:
    for node in ast.walk(tree):
        warns = isinstance(node, ast.Call) and dotted(node.func) in ("warnings.warn", "warn")
        if warns and not (node.args and calls_one(node.args[0], {"line"})):
            yield node, "a warning is a line(…)"


def comments(path: str, tree: ast.AST) -> Found:
    """What is put into a C comment is a ``c_comment(…)``, or has the format of a number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            before = ""
            for piece in node.values:
                if isinstance(piece, ast.Constant):
                    before += str(piece.value)
                elif isinstance(piece, ast.FormattedValue):
                    made = calls_one(piece.value, {"c_comment"}) and piece.conversion == -1
                    if in_comment(before) and not made and not is_number(piece.format_spec):
                        yield piece, "a C comment is made by c_comment"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "/*" in node.value:
            if isinstance(node.parent, (ast.Expr, ast.JoinedStr)):  # type: ignore[attr-defined]
                continue  # a docstring; a piece of the above
            yield from template_comments(tree, node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
            whole = isinstance(node.op, ast.Mod)
            for side in (node.left, node.right):
                text = side.value if isinstance(side, ast.Constant) and isinstance(side.value, str) else ""
                if in_comment(text) or (whole and "/*" in text):
                    yield node, "a C comment is made in one piece"


def template_comments(tree: ast.AST, node: ast.Constant) -> Found:
    """The fields in the comments of a template, and what ``.format`` puts into them."""
    before, fields = "", []
    try:
        for text, field, spec, _ in Formatter().parse(node.value):
            before += text
            if field is not None and in_comment(before) and not re.fullmatch(r"[.\d]*[dfeg]", spec or ""):
                fields.append(field)
    except ValueError:
        return  # no template: braces of C
    owner = node.parent  # type: ignore[attr-defined]
    names = [dotted(t) for t in owner.targets] if isinstance(owner, ast.Assign) else []
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        template = call.func.value
        if call.func.attr != "format" or (dotted(template) not in names and template is not node):
            continue
        given = {k.arg: k.value for k in call.keywords}
        for field in fields:
            if field not in given or not calls_one(given[field], {"c_comment"}):
                yield call, f"a C comment is made by c_comment: {field!r}"


def foreign(path: str, tree: ast.AST) -> Found:
    for room, (names, functions) in FOREIGN.items():
        if not path.startswith(room):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
                name = dotted(node).rpartition(".")[2]
                if name in names and not within(node, functions):
                    yield node, f"{name} is from outside: write it by {' or '.join(sorted(functions))}"


def assembler(path: str, tree: ast.AST) -> Found:
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for piece, after in zip(node.values, node.values[1:], strict=False):
            text = str(piece.value) if isinstance(piece, ast.Constant) else ""
            quoted = isinstance(after, ast.FormattedValue) and calls_one(after.value, {"c_string"})
            if re.search(r'\.incbin\s*"$', text) or (text.rstrip().endswith(".incbin") and not quoted):
                yield node, "a path in assembler is a c_string"


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def calls_one(node: ast.AST, functions: Iterable[str]) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in functions


def within(node: ast.AST, functions: set[str]) -> bool:
    while (node := getattr(node, "parent", None)) is not None:  # type: ignore[assignment]
        if calls_one(node, functions):
            return True
        if isinstance(node, (ast.comprehension, ast.stmt)):
            return isinstance(node, ast.comprehension)
    return False


def in_comment(before: str) -> bool:
    return before.rfind("/*") > before.rfind("*/")


def is_number(spec: ast.expr | None) -> bool:
    pieces = spec.values if isinstance(spec, ast.JoinedStr) else []
    text = "".join(str(p.value) for p in pieces if isinstance(p, ast.Constant))
    return re.fullmatch(r"[.\d]*[dfeg]", text) is not None


def is_false(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def without_encoding(source: str) -> list[int]:
    """The lines that read or write a file of text without naming its encoding."""
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        positions = {"read_text": 0, "write_text": 1}
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        is_named = any(keyword.arg == "encoding" for keyword in call.keywords)
        if name in positions and isinstance(call.func, ast.Attribute):
            is_named |= len(call.args) > positions[name]
        elif isinstance(call.func, ast.Name) and name == "open":
            mode = call.args[1] if len(call.args) > 1 else None
            is_named |= isinstance(mode, ast.Constant) and "b" in str(mode.value)
        else:
            continue
        if not is_named:
            found.append(call.lineno)
    return sorted(found)
