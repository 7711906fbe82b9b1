"""The names of patterns, and of what a user may switch off by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches

from convoy.errors import ConvoyError, ModelError
from convoy.graph.fusion import ANCHORS, kernel_names, pattern_name
from convoy.ops.products import has_weight
from convoy.ops.reader import Call, Reader
from convoy.ops.table import row_of
from convoy.options import Options

KEY = "convoy"
"""Name of the external codegen, and the key and the tag of TVM targets that contain it."""

HOST_KEY = "host"
"""The key of targets that mean this machine, whatever LLVM calls it: the tag's."""


def stem(name: str) -> str:
    """The name of an op in the name of a pattern."""
    return name.rpartition(".")[2]


def is_anchor(call: Call, at: Reader) -> bool:
    """May something join the kernel of a call?  Of products only those with a matrix of weights."""
    name = at.name(call)
    return stem(name) in ANCHORS and (row_of(name).cost != "product" or has_weight(at, call))


def pattern_names(ops: Iterable[str], activations: Collection[str]) -> frozenset[str]:
    """Every pattern of a door: ops and idioms by themselves, and anchors with what may join them.

    >>> sorted(pattern_names(["nn.conv2d"], ["relu"]))[:3]
    ['convoy.conv2d', 'convoy.conv2d_add', 'convoy.conv2d_add_relu']
    """
    stems = {stem(op) for op in ops}
    joined = {name for op in stems & ANCHORS.keys() for name, _ in kernel_names(op, activations)}
    return frozenset(map(pattern_name, stems | joined))


def check_names(
    options: Options, patterns: Collection[str], ops: Iterable[str], nodes: Collection[str], *, prefix: str
) -> None:
    """Refuse names of patterns, ops and nodes that do not exist: a slip would silently do nothing.

    Parameters
    ----------
    patterns, ops
        Every pattern and op of the door.
    nodes : Collection[str]
        Names of the module's nodes.
    prefix : str
        What an op's name may also begin with: ``relax.`` or ``relay.``.

    Raises
    ------
    ConvoyError
        For an unknown pattern, op or node.
    """
    for name in sorted(options.disabled_patterns - set(patterns)):
        near = sorted(p for p in patterns if p.startswith(name[: len("convoy.") + 4]))[:5]
        known = ", ".join(near or sorted(patterns)[:5])
        raise ConvoyError(
            "annotate", f"pattern {name!r}", f"expected a pattern such as {known}", "correct the name"
        )
    known_ops = {name for full in ops for name in (full, stem(full), f"{prefix}{full}")}
    for name in sorted(options.disabled_ops - known_ops):
        known = ", ".join(get_close_matches(name, sorted(known_ops), 3) or ["nn.softmax"])
        raise ConvoyError(
            "annotate", f"op {name!r}", f"expected an op Convoy takes such as {known}", "correct the name"
        )
    for name in sorted(options.exclude):
        if name not in nodes:
            near = get_close_matches(name, sorted(nodes), 3, 0.0)
            raise ConvoyError(
                "annotate",
                f"node {name!r}",
                f"expected the name of a node after folding, such as {', '.join(near)}",
                "take one of those that explain --json, or a Report, lists",
            )


def check_codegen(codegen: str) -> None:
    """Refuse a name that TVM finds no code generator by.

    Raises
    ------
    ConvoyError
        For a name that is no identifier, or ``default``, which is TVM's own.
    """
    is_name = isinstance(codegen, str) and codegen.isascii() and codegen.isidentifier()
    if not is_name or codegen == "default":
        problem = "expected letters, digits and underscores, and not TVM's default"
        raise ConvoyError("partition", f"codegen {codegen!r}", problem, "take a name such as acme")


def check_module_name(name: str) -> None:
    """Refuse a name that TVM makes no names of functions of.

    Raises
    ------
    ConvoyError
        For anything but a text of ASCII.
    """
    if not isinstance(name, str) or not name.isascii():
        problem = "expected a text of ASCII characters"
        raise ConvoyError("partition", f"name {name!r}", problem, "take a name such as resnet50")


def check_registered(function: str, codegen: str, entry: str, is_there: Callable[[str], bool]) -> None:
    """Refuse a marked function that no code generator waits for.

    Parameters
    ----------
    entry : str
        What TVM calls with functions marked for ``codegen``.
    is_there : Callable[[str], bool]
        Whether TVM knows a function of this name.

    Raises
    ------
    ModelError
        If it does not.
    """
    if not is_there(entry):
        got = codegen or "no name"
        raise ModelError(
            "codegen",
            f"function {function!r}",
            f"expected a codegen that is registered, got {got}, for which there is no {entry}",
            f"import what registers {entry}, or take the mark off the function",
        )


def check_refuse(refuse: object) -> None:
    """Refuse what cannot be asked.

    Raises
    ------
    ConvoyError
        If it is no function.
    """
    if not callable(refuse):
        problem = f"expected a function of a call, got an object of type {type(refuse).__name__}"
        raise ConvoyError("partition", "refuse", problem, "leave it out to refuse nothing")


def switched_off(options: Options, op: str, node_names: Iterable[str], *, prefix: str) -> str | None:
    """Why the user's options leave this op out; None if they do not."""
    if {op, stem(op), f"{prefix}{op}"} & options.disabled_ops:
        return f"op {op} is switched off"
    if set(node_names) & options.exclude:
        return "excluded by name"
    return None
