"""The step that runs a chain of kernels strip by strip (``csrc/kernels/strips.h``).

Its members are planned and written as steps of their own; only the results that pass between them lie in
each thread's scratch, as many rows as a strip needs, and maps are cut to the rows the driver asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convoy.codegen.writer import Writer, wrap
from convoy.graph.sizes import is_open
from convoy.kernels.kernel import KernelKind, Planner
from convoy.kernels.strips.window import Chain, Window, strip_heights
from convoy.kernels.values import Values
from convoy.plan.buffers import Array, Map, Operand
from convoy.plan.maps import map_size
from convoy.plan.step import Note, Step
from convoy.text import c_comment

MEMBER = """\

/* {note} */
static void {name}(cv_thread t, const struct frame *f, const cv_strip *s) {{
{body}}}"""


@dataclass(frozen=True)
class Member:
    """``step`` works on the rows it is told; its maps are whole ones, or strips."""

    step: Step
    window: Window
    x_height: int
    height: int
    """Rows of its whole input and result."""


@dataclass(frozen=True, kw_only=True)
class Strips(Step):
    """``scratch`` holds the strips; ``y`` is the last member's."""

    members: tuple[Member, ...]
    rows: int

    @property
    def algorithm(self) -> str:
        return "strips"

    @property
    def method(self) -> str:
        return f"strips of {self.rows} rows"

    def is_strip(self, operand: Operand) -> bool:
        return any(operand.buffer == strip.buffer for strip in self.scratch)

    @property
    def reads(self) -> tuple[Operand, ...]:
        return tuple(o for m in self.members for o in m.step.reads if not self.is_strip(o))


def plan_strips(chain: Chain, values: Values, plan_member: Planner) -> Iterator[Step]:
    """The step of a chain; ``plan_member`` gives those of its members."""
    graph, fusions = values.graph, chain.fusions
    scratch: list[Array] = []
    heights = strip_heights(chain.windows, chain.estimate.rows)
    for fusion, height in zip(fusions, heights, strict=False):
        strip = values.define_strip(fusion.output, height)
        scratch.append(Array(strip.buffer, 0, (map_size(strip),), strip.dtype))
    members: list[Member] = []
    for fusion, window in zip(fusions, chain.windows, strict=True):
        *before, step = plan_member(fusion, values)
        yield from before
        height = graph.shape(fusion.output)[2]
        x_height = height if window.one_row else graph.shape(fusion.anchor.inputs[0])[2]
        members.append(Member(step, window, x_height, height))
    notes = [member.step.note for member in members]
    yield Strips(
        note=Note(notes[0].op, ", then ".join(note.text for note in notes)), y=members[-1].step.y,
        scratch=tuple(scratch), members=tuple(members), rows=chain.estimate.rows,
        cycles=chain.estimate.together,
    )  # fmt: skip


def emit_strips(step: Strips, w: Writer) -> str:
    """The body of the chain's function; declares its members' functions and tables."""
    w.headers.add("strips")
    rows, strips = [], []
    before: Operand | None = None
    for i, member in enumerate(step.members):
        name = f"member_{w.number()}"
        w.cut = _Cut(step, member, before)
        body = w.emit_step(member.step, w)
        w.cut = None
        w.declare(MEMBER.format(note=c_comment(member.step.note.text), name=name, body=body))
        window = member.window
        rows.append(
            f"{{{name}, {window.stride}, {window.pad}, {window.reach}, {member.x_height}, {member.height}}}"
        )
        before = member.step.y
        if i + 1 < len(step.members):
            assert isinstance(before, Map)
            strips.append(w.map_literal(before))
    table, members = "", "members"
    if any(is_open((member.x_height, member.height)) for member in step.members):
        table = f"  const cv_strip_member members[] = {{\n{wrap(rows)}  }};\n"
    else:
        members = w.table("cv_strip_member", rows)
    listed = "".join(f"      {strip},\n" for strip in strips)
    return (
        f"{table}  const cv_map strips[] = {{\n{listed}  }};\n"
        f"  cv_run_strips(t, {members}, strips, {len(rows)}, {step.rows}, f);\n"
    )


class _Cut:
    """The rows of a member's maps that it works on."""

    def __init__(self, strips: Strips, member: Member, before: Operand | None) -> None:
        self.strips = strips
        self.window = member.window
        self.before = before

    def source(self, literal: str, inside: bool) -> str:
        if inside:
            return f"cv_strip_inside({literal}, s)"
        return f"cv_strip_under({literal}, s, {self.window.stride})"

    def result(self, literal: str, m: Map) -> str:
        return f"cv_strip_result({literal}, s)" if self.strips.is_strip(m) else _rows(literal)

    def beside(self, literal: str, m: Map) -> str:
        return f"cv_strip_under({literal}, s, 1)" if m == self.before else _rows(literal)


def _rows(literal: str) -> str:
    return f"cv_map_rows({literal}, s->rows)"


KERNEL = KernelKind(emitters={Strips: emit_strips})
