"""The measured choice for each convolution of a graph, within a budget of time.

Convolutions of one shape are measured once; those that are estimated to take longest come first, and
what the budget does not reach keeps its estimate.  What was measured before costs nothing.

Depthwise convolutions have nothing to choose from: tiles of 14 and of 19 pixels differ by 1 %, and wider
ones spill (2026-11-21).  Transposed ones keep the estimated tiles of their phases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from convoy.errors import TargetError
from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.kernels.conv2d.candidates import list_candidates
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.note import make_note
from convoy.kernels.registry import choose_layouts
from convoy.options import Options
from convoy.plan.fuse import Fusion, fuse
from convoy.target import Target, host
from convoy.toolchain.probe import as_measured
from convoy.tune import store
from convoy.tune.trial import draw_trial, measure_candidates

CLEARLY = 0.03
"""A gain below it is noise."""

Say = Callable[[str], None]
"""Receives one line about what is measured."""


@dataclass
class Tuner:
    """Call it with a simplified graph: the choices by the names of the convolutions' outputs.

    Raises
    ------
    TargetError
        If this machine cannot run what the target has.
    """

    target: Target
    options: Options
    say: Say = lambda _: None
    measured: int = 0
    """Convolutions measured so far, not those found in the cache."""
    spent: float = field(default=0.0, init=False)
    """Seconds."""

    def __post_init__(self) -> None:
        said = self.target.with_said(self.options.cores, self.options.l2_bytes)
        self.target, _ = as_measured(said, self.options.cache)
        if self.target.lanes > host().lanes:
            raise TargetError(
                "tune", self.target.isa, f"expected what this machine has, {host().isa}, to measure on it",
                "tune on such a machine, or compile without tuning",
            )  # fmt: skip

    def __call__(self, graph: Graph) -> Mapping[str, Choice]:
        alike: dict[str, list[Fusion]] = {}
        fusions = fuse(graph, self.options.disabled_patterns)
        blocked = choose_layouts(graph, fusions)
        for fusion in fusions:
            conv = fusion.anchor
            if isinstance(conv, Conv2d) and conv.inputs[1] in graph.constants:  # and not integers
                alike.setdefault(describe_trial(fusion, graph, blocked), []).append(fusion)
        threads = self.options.threads or self.target.cores
        listed = [
            (what, fusions, self._candidates(fusions[0], graph, blocked, threads))
            for what, fusions in alike.items()
        ]
        listed = [entry for entry in listed if len(entry[2]) > 1]
        listed.sort(key=lambda entry: -entry[2]["estimated"].chosen_cycles * len(entry[1]))
        found: dict[str, Choice] = {}
        for number, (what, fusions, candidates) in enumerate(listed, 1):
            times = self._times(
                f"{number} of {len(listed)}", what, fusions, graph, blocked, candidates, threads
            )
            if times is not None:
                best = replace(candidates[fastest(times)], measured=times)
                found |= {fusion.anchor.output: best for fusion in fusions}
        return found

    def _candidates(
        self, fusion: Fusion, graph: Graph, blocked: Mapping[str, bool], threads: int
    ) -> dict[str, Choice]:
        conv = fusion.anchor
        assert isinstance(conv, Conv2d)
        return list_candidates(
            conv, graph, self.target, threads, self.options, blocked.get(conv.inputs[0], True)
        )

    def _times(
        self,
        number: str,
        what: str,
        fusions: Sequence[Fusion],
        graph: Graph,
        blocked: Mapping[str, bool],
        candidates: Mapping[str, Choice],
        threads: int,
    ) -> store.Times | None:
        """From the cache, or measured while the budget lasts."""
        key = store.make_key(what, candidates, self.target, threads)
        times = store.find(key, self.options.cache)
        if times is not None or self.spent >= self.options.tune:
            return times

        self.say(f"tuning {number}: {len(candidates)} ways, {make_note(fusions[0], graph).text}")
        start = time.perf_counter()
        trial = draw_trial(fusions[0], graph, blocked)
        times = measure_candidates(trial, candidates, self.target, threads, self.options)
        self.measured += 1
        self.spent += time.perf_counter() - start
        return store.keep(key, self.options.cache, times)


def fastest(times: store.Times) -> str:
    """The name of the fastest candidate; the first one, the estimated, where none is clearly faster."""
    first = next(iter(times))
    best = min(times, key=lambda name: times[name])
    return best if times[best] < times[first] * (1 - CLEARLY) else first


def describe_trial(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> str:
    """Everything of a convolution that its time depends on; its name in the network is none of it."""
    conv = fusion.anchor
    assert isinstance(conv, Conv2d)
    acts = [act and (act.kind, act.a, act.b) for act in (fusion.inner, fusion.outer)]
    facts = (
        graph.shape(conv.inputs[0]), blocked.get(conv.inputs[0], True), graph.shape(conv.inputs[1]),
        conv.stride, conv.padding, conv.dilation, conv.groups, acts, fusion.residual is not None,
        blocked.get(fusion.residual or "", True),
    )  # fmt: skip
    return repr(facts)


def make_tuner(target: Target, options: Options, say: Say | None = None) -> Tuner | None:
    """The tuner that ``options.tune`` asks for; None for no seconds.

    Raises
    ------
    TargetError
        As ``Tuner``.
    """
    return Tuner(target, options, say or (lambda _: None)) if options.tune > 0 else None
