"""A ``Profile`` as text: a table of its parts, kinds of kernels, and what the time comes to."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group

from convoy.report.decision import Roof
from convoy.report.profile import Kind, Part, Profile
from convoy.report.sheet import Sheet, plain
from convoy.text import line

SUMS: dict[Kind, str] = {
    "step": "steps of regions",
    "kernel": "TVM's kernels",
    "runtime": "TVM's virtual machine",
    "team": "entering and leaving regions",
}
"""What each kind of part is called in a sum."""


def describe_profile(profile: Profile) -> Group:
    """The whole profile, for a terminal."""
    return Group(_parts(profile), plain(""), *(plain(text) for text in summarize_profile(profile)))


def summarize_profile(profile: Profile) -> Iterator[str]:
    """What the time comes to, line by line."""
    yield (
        f"{_ms(profile.seconds)} ms a run on {profile.threads} threads, the mean of the fastest quarter "
        f"of {profile.runs} runs; {_ms(profile.plain)} ms while nobody listens "
        f"({100 * profile.slowdown:+.1f} %)"
    )
    shares = ", ".join(f"{what} {100 * profile.share_of(kind):.1f} %" for kind, what in SUMS.items())
    yield (
        f"accounted for: {100 * profile.accounted:.1f} %: {shares}; the other "
        f"{100 * (1 - profile.accounted):.1f} % are the call from Python"
    )
    roof = profile.roof
    yield (
        f"roof: {roof.flops / 1e9:.0f} GFLOP/s, {roof.cache / 1e9:.0f} GB/s from L2, "
        f"{roof.memory / 1e9:.1f} GB/s from memory; the share of a step is the least time its algorithm's "
        "products, or its bytes from L2, take, over its time; more than 100 % where data lies nearer"
    )
    yield (
        "balance: what the threads compute, on average, of what the busiest one does; a step's time has "
        "the waiting for others in it"
    )


def part_name(part: Part) -> str:
    """The nodes a part computes, else what it is."""
    return ", ".join(part.nodes) or part.text


def cells(part: Part, roof: Roof) -> tuple[str, ...]:
    """Estimate, GFLOP/s, share of the roof, MB and balance, empty where there is none."""
    share, rate, balance = part.share_of_roof(roof), part.rate, part.balance
    return (
        "" if part.estimate is None else _ms(part.estimate),
        "" if rate is None else f"{rate / 1e9:.0f}",
        "" if share is None else f"{100 * share:.0f} %",
        f"{part.bytes / 1e6:.2f}" if part.bytes else "",
        "" if balance is None else f"{100 * balance:.0f} %",
    )


def _parts(profile: Profile) -> Sheet:
    table = Sheet(
        "", "what", "kernel", "ms", "of the run", "estimated ms", "GFLOP/s", "of the roof", "MB", "balance",
        title=line(profile.model),
    )  # fmt: skip
    for number, part in enumerate(profile.parts, 1):
        name, share = part_name(part), 100 * part.seconds / profile.seconds
        kernel = "" if part.kernel == name else part.kernel
        table.add_row(
            str(number), name, kernel, _ms(part.seconds), f"{share:.1f} %", *cells(part, profile.roof)
        )
    return table


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"
