"""A network that fails, made smaller for as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import onnx

from convoy.bench import smaller as parts
from fuzz.campaign.case import Case
from fuzz.networks.bundle import closed, form_of

Model = onnx.ModelProto


def shrink(model: Model, case: Case, fails: Callable[[Model, Case], bool]) -> tuple[Model, Case]:
    """The smallest network and case found that ``fails``.

    Parameters
    ----------
    fails : Callable[[Model, Case], bool]
        Whether a network is valid and fails in the way the first one did; False as well once there has
        been enough of it.
    """
    going_on = True
    while going_on:
        going_on = False
        for smaller in smaller_models(model):
            if fails(smaller, case):
                model, going_on = smaller, True
                break
    while simpler := next((simpler for simpler in simpler_cases(case) if fails(model, simpler)), None):
        case = simpler
    return model, case


def simpler_cases(case: Case) -> Iterator[Case]:
    """The case with one thing as it is by default, and without each of its passes."""
    for i in range(len(case.passes)):
        yield replace(case, passes=case.passes[i : i + 1])
    for name, value in (
        ("passes", ()),
        ("threads", 1),
        ("shipped", False),
        ("small", True),
        ("integers", False),
    ):
        if getattr(case, name) != value:
            yield replace(case, **{name: value})


def smaller_models(model: Model) -> Iterator[Model]:
    """Networks with something less, the boldest first; one whose sizes are open also with them fixed."""
    yield from parts.smaller_models(model)
    form = form_of(model)
    if form.symbolic:
        fixed = parts.resized(model, None, 0, form.batch)
        fixed.metadata_props[0].value = str(form.batch)
        yield fixed
    if form.sides:
        yield closed(model)
