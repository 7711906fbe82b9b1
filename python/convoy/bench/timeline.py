"""One traced run, cut into pieces that follow one another without a gap on the thread of the caller."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from convoy.deploy.traced import Event, Trace

TEAM, RUNTIME = "entering and leaving regions", "vm."
"""What takes a region's time beside its steps; how names of TVM's own functions begin."""
BETWEEN = "vm: between its calls, listening included"
"""What TVM's virtual machine takes beside what it calls."""
AROUND = "the call from Python"
"""What is before the first call of TVM's virtual machine, and behind its last."""


class Key(NamedTuple):
    """What a piece of time belongs to."""

    name: str
    """A region's symbol, a function of TVM's, or ``TEAM``."""
    number: int
    """The number of a step in its region, or of a call of the function in a run; -1: neither."""


@dataclass
class Timeline:
    """What each thing took in one run, in seconds."""

    trace: Trace
    regions: Collection[str]
    """Symbols."""
    seconds: dict[Key, float] = field(default_factory=lambda: defaultdict(float))
    """On the caller's clock."""
    busy: dict[Key, dict[int, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    """What each thread computed."""
    spans: list[tuple[Key, Event]] = field(default_factory=list)

    def __post_init__(self) -> None:
        steps = [event for event in self.trace.events if event.step >= 0]
        calls = [event for event in self.trace.events if event.step < 0]
        for event in steps:
            key = Key(event.name, event.step)
            self.busy[key][event.thread] += event.end - event.begin
            self.spans.append((key, event))
        seen: Counter[str] = Counter()
        for call, inner in _nest(calls):
            if call.name in self.regions:
                self._cut(call, [s for s in steps if call.begin <= s.begin and s.end <= call.end])
                continue
            number = -1 if call.name.startswith(RUNTIME) else seen[call.name]
            seen[call.name] += 1
            key = Key(call.name, number)
            self.seconds[key] += call.end - call.begin - sum(i.end - i.begin for i in inner)
            self.spans.append((key, call))

        self._add_gaps(calls)

    def _add_gaps(self, calls: Sequence[Event]) -> None:
        """Between calls that are within no other, before the first and behind the last."""
        first = end = calls[0].begin if calls else self.trace.end
        for call in calls:
            self.seconds[Key(BETWEEN, -1)] += max(call.begin - end, 0.0)
            end = max(end, call.end)
        self.seconds[Key(AROUND, -1)] += first - self.trace.begin + self.trace.end - end

    def _cut(self, call: Event, steps: Sequence[Event]) -> None:
        """The call of a region: each step from where the caller begins it to where it begins the next."""
        own = [step for step in steps if step.thread == call.thread]
        end = max((step.end for step in steps), default=call.begin)
        first = own[0].begin if own else call.end
        for step, following in zip(own, [*(s.begin for s in own[1:]), end], strict=True):
            self.seconds[Key(step.name, step.step)] += following - step.begin
        self.seconds[Key(TEAM, -1)] += first - call.begin + (call.end - end if own else 0.0)


def _nest(calls: Sequence[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Each call in the order in which they began, with the calls directly within it."""
    within: list[list[Event]] = [[] for _ in calls]
    open_calls: list[int] = []
    for i, call in enumerate(calls):
        while open_calls and calls[open_calls[-1]].end <= call.begin:
            open_calls.pop()
        if open_calls:
            within[open_calls[-1]].append(call)
        open_calls.append(i)
    yield from zip(calls, within, strict=True)
