"""Names that do something where they are shown or written, and a model full of them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CODE = (
    "int system(const char *); __attribute__((constructor)) static void p(void) "
    '{{ system("echo ran > {}"); }}'
)

CLOSINGS = (
    "*/", "**/", "/*/", "*/*/", "*\\\n/", "*\\ \t\n/", "*\\\r\n/", "*\\\n\\\n/", "*??/\n/", "*?\\\n?/\n/",
    "\\\n*/", "\n*/\n", "\r*/\r", "*\u2028/", "*\0/", "*\v/", "*\u200b/", "\uff0a/", "%>*/", '"*/', "'*/",
    "R\"(*/)\"",
)  # fmt: skip
"""What might end a comment, or a string."""

SCREEN = (
    "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\here\x1b]8;;\x1b\\", "\x9b31m", "\x1bPq\x1b\\",
    "a\nerror: all is well", "a\r\nwarning: b", "a\rb", "a\x08b", "a\x7fb", "a\u2028b", "a\x85b", "a\x0cb",
    "\u202eevil", "\u2066a\u2069", "\u200f", "\ufeff",
    "[red]x[/red]", "[link=http://x]y[/link]", "[/]", "[bold", "[@click=app.bell]x[/]", ":boom:", "$x$",
    "{x}", "%s",
)  # fmt: skip
"""What might do something to a terminal, or to what prints there."""

ELSEWHERE = (
    "; touch RAN", "$(touch RAN)", "`touch RAN`", "| touch RAN", "../../../RAN", "/RAN", "-o", "@file", "~",
    "",
    "<script>x</script>", "&lt;", "|x|", "x" * 5000, "_", "int", "main", "é漢字", "#include </etc/passwd>",
)  # fmt: skip
"""What might do something in a shell, in a file's name or on a page."""

NAMES = (*(f"{end} {CODE.format('RAN')} /*" for end in CLOSINGS), *SCREEN, *ELSEWHERE)


def hostile_model(names: tuple[str, ...], ran: str) -> onnx.ModelProto:
    """A chain of convolutions and other ops in which everything that has a name has one of ``names``;
    their code would write the file ``ran``.

    float32 [dim, 4, 6, 6] → [dim, 4, 6, 6]
    """
    told = [name.replace("RAN", ran) for name in names]
    random = np.random.default_rng(0)
    nodes, weights = [], []
    before = f"x{told[0]}"
    first = before
    for i, name in enumerate(told):
        op, inputs = ("Conv", "Relu", "Erf", "Sigmoid")[i % 4], [before]
        if op == "Conv":
            w = random.standard_normal((4, 4, 1, 1)).astype(np.float32)
            weights.append(numpy_helper.from_array(w, f"w{name}{i}"))
            inputs.append(f"w{name}{i}")
        before = f"{name}{i}"
        nodes.append(helper.make_node(op, inputs, [before], name=name, doc_string=name))
    shape = [f"n{told[0]}", 4, 6, 6]
    graph = helper.make_graph(
        nodes,
        told[1],
        [helper.make_tensor_value_info(first, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(before, TensorProto.FLOAT, shape)],
        weights,
        doc_string=told[2],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = model.domain = model.doc_string = told[0]
    return model
