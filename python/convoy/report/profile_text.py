"""A ``Profile`` as text: a table of its parts, kinds of kernels, and what the time comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group

from convoy.report.decision import Roof, name_nodes
from convoy.report.profile import Kind, Part, Profile
from convoy.report.sheet import Sheet, plain
from convoy.text import line

SUMS: dict[Kind, str] = {
    "step": "steps of regions",
    "kernel": "TVM's kernels",
    "runtime": "TVM's virtual machine and the call from Python",
    "team": "entering and leaving regions",
}
"""What each kind of part is called in a sum."""


def describe_profile(profile: Profile) -> Group:
    """The whole profile, for a terminal."""
    return Group(_parts(profile), plain(""), *(plain(text) for text in summarize_profile(profile)))


def summarize_profile(profile: Profile) -> Iterator[str]:
    """What the time comes to, line by line."""
    unit = _unit(profile)
    yield (
        f"{unit.text(profile.plain)} {unit.name} a run on {profile.threads} threads, the mean of the "
        f"fastest quarter of {profile.runs} runs; {unit.text(profile.seconds)} {unit.name} while listened "
        f"to{_cost(profile)}"
    )
    shares = ", ".join(f"{what} {100 * profile.share_of(kind):.1f} %" for kind, what in SUMS.items())
    yield f"accounted for: {100 * profile.accounted:.1f} % of a run that is listened to: {shares}"
    roof = profile.roof
    yield (
        f"roof: {roof.flops / 1e9:.0f} GFLOP/s of float32, {roof.cache / 1e9:.0f} GB/s from L2, "
        f"{roof.memory / 1e9:.1f} GB/s from memory; the share of a step is the least time its algorithm's "
        "products, or its bytes from L2, take, over its time; more than 100 % where data lies nearer"
    )
    yield (
        "balance: what the threads compute, on average, of what the busiest one does; a step's time has "
        "the waiting for others in it"
    )


def part_name(part: Part) -> str:
    """The nodes a part computes, else what it is."""
    return name_nodes(part.nodes) or part.text


def _cells(part: Part, roof: Roof, unit: _Unit) -> tuple[str, ...]:
    """Estimate, GFLOP/s, share of the roof, MB and balance, empty where there is none."""
    share, rate, balance = part.share_of_roof(roof), part.rate, part.balance
    return (
        "" if part.estimate is None else unit.text(part.estimate),
        "" if rate is None else f"{rate / 1e9:.0f}",
        "" if share is None else f"{100 * share:.0f} %",
        f"{part.bytes / 1e6:.2f}" if part.bytes else "",
        "" if balance is None else f"{100 * balance:.0f} %",
    )


def _parts(profile: Profile) -> Sheet:
    unit = _unit(profile)
    table = Sheet(
        "", "what", "kernel", unit.name, "of the run", f"estimated {unit.name}", "GFLOP/s", "of the roof",
        "MB", "balance", title=line(profile.model),
    )  # fmt: skip
    for number, part in enumerate(profile.parts, 1):
        name, share = part_name(part), 100 * part.seconds / profile.seconds
        kernel = "" if part.kernel == name else part.kernel
        taken = (unit.text(part.seconds), f"{share:.1f} %")
        table.add_row(str(number), name, kernel, *taken, *_cells(part, profile.roof, unit))
    return table


def _cost(profile: Profile) -> str:
    """What listening costs, in words."""
    cost = f"{100 * profile.slowdown:+.1f} %"
    if profile.every == 1:
        return f" ({cost})"
    return (
        f"; listening is much of so short a run, so one in {profile.every} is listened to ({cost} for all "
        "of them together), and what TVM's virtual machine and the call take has it in"
    )


@dataclass(frozen=True)
class _Unit:
    """What times are written in."""

    name: str
    scale: float

    def text(self, seconds: float) -> str:
        return f"{self.scale * seconds:.3f}"


def _unit(profile: Profile) -> _Unit:
    return _Unit("us", 1e6) if profile.plain < 1e-3 else _Unit("ms", 1e3)
