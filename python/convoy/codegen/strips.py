"""Emit a chain that runs strip by strip: a function per member, and a table of them for the driver.

A member is emitted as a step of its own; only its maps are cut to the rows the driver asks for.
"""

from __future__ import annotations

from convoy.codegen.kernels import emit_step
from convoy.codegen.writer import Writer
from convoy.plan.steps import Map, Operand, Pool
from convoy.plan.strips import Member, Strips
from convoy.text import c_comment

MEMBER = """\

/* {note} */
static void {name}(cv_thread t, const struct frame *f, const cv_strip *s) {{
{body}}}"""


def emit_strips(step: Strips, w: Writer) -> str:
    """The body of the chain's function; declares its members' functions and tables."""
    w.headers.add("strips")
    rows, strips = [], []
    before: Operand | None = None
    for i, member in enumerate(step.members):
        name = f"member_{w.number()}"
        w.cut = _Cut(step, member, before)
        body = emit_step(member.step, w)
        w.cut = None
        w.declare(MEMBER.format(note=c_comment(member.step.note), name=name, body=body))
        window = member.window
        rows.append(
            f"{{{name}, {window.stride}, {window.pad}, {window.reach}, {member.x_height}, {member.height}}}"
        )
        before = member.step.y
        if i + 1 < len(step.members):
            assert isinstance(before, Map)
            strips.append(w.map_literal(before))
    members = w.table("cv_strip_member", rows)
    listed = "".join(f"      {strip},\n" for strip in strips)
    return (
        f"  const cv_map strips[] = {{\n{listed}  }};\n"
        f"  cv_run_strips(t, {members}, strips, {len(rows)}, {step.rows}, f);\n"
    )


class _Cut:
    """The rows of a member's maps that it works on."""

    def __init__(self, strips: Strips, member: Member, before: Operand | None) -> None:
        self.strips = strips
        self.member = member
        self.before = before

    def __call__(self, name: str, m: Map, literal: str) -> str:
        step = self.member.step
        if name == "y":
            return f"cv_strip_result({literal}, s)" if self.strips.is_strip(m) else self._rows(literal)
        if name == "x" and isinstance(step, Pool):
            return f"cv_strip_inside({literal}, s)"
        if name == "x":
            return f"cv_strip_under({literal}, s, {self.member.window.stride})"
        if m == self.before:
            return f"cv_strip_under({literal}, s, 1)"
        return self._rows(literal)

    def _rows(self, literal: str) -> str:
        return f"cv_map_rows({literal}, s->rows)"
