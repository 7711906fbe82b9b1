"""offload/watch.py: the pass that touched a function is named; a maker of functions may."""

from __future__ import annotations

import pytest

from convoy.errors import ConvoyError, GuardError
from convoy.offload.watch import Watch

BEFORE = {"convoy_0": "conv", "convoy_1": "relu"}


@pytest.fixture
def watch() -> Watch:
    """Modules are dictionaries of functions, which are texts that hash by what they say."""
    return Watch(["Partition"], dict, hash, "guard it", len)


def test_what_is_unchanged_passes(watch: Watch) -> None:
    watch.before("Fuse", BEFORE)
    watch.after("Fuse", dict(BEFORE))
    watch.before("Rename", BEFORE)
    watch.after("Rename", {"another": "conv", "name": "relu"})  # whatever it is called
    assert watch.running == []


@pytest.mark.parametrize(
    ("after", "got"),
    [({"convoy_0": "conv"}, "none"), ({"convoy_0": "conv", "convoy_1": "tanh"}, "another in its place")],
)
def test_a_changed_function_names_its_pass_and_those_that_ran_it(
    watch: Watch, after: dict[str, str], got: str
) -> None:
    watch.before("Sequential", BEFORE)
    watch.before("Fuse", BEFORE)
    with pytest.raises(GuardError) as raised:
        watch.after("Fuse", after)
    assert str(raised.value).startswith(
        f"Sequential > Fuse: function 'convoy_1': expected it unchanged, got {got}; guard it"
    )


def test_a_maker_may_change_what_the_pass_around_it_then_keeps(watch: Watch) -> None:
    watch.before("Sequential", BEFORE)
    watch.before("Partition", BEFORE)
    after = {"convoy_0": "conv and relu"}
    watch.after("Partition", after)
    watch.after("Sequential", after)
    watch.before("Sequential", after)
    with pytest.raises(GuardError):
        watch.after("Sequential", {})


def test_a_pass_that_failed_is_forgotten(watch: Watch) -> None:
    watch.before("Outer", BEFORE)
    watch.before("Fails", {"convoy_0": "other"})
    watch.after("Outer", BEFORE)  # Fails never came to its end
    assert watch.running == []
    watch.before("Fails", BEFORE)
    watch.begin()
    assert watch.running == []
    watch.after("Unknown", {})


def test_after_a_maker_has_failed_others_are_looked_at_again(watch: Watch) -> None:
    def fail() -> None:
        watch.before("Partition", BEFORE)
        raise ValueError("and whoever runs it goes on")

    def lose() -> None:
        watch.before("Lose", BEFORE)
        watch.after("Lose", {})

    for attempt in (fail, lose, fail, lose):
        with pytest.raises(ValueError if attempt is fail else GuardError, match=r"goes on|^Lose: function"):
            attempt()


def test_names_of_makers_are_names() -> None:
    with pytest.raises(ConvoyError, match="makers"):
        Watch([3], dict, hash, "", len)  # type: ignore[list-item]


def test_a_function_may_go_with_the_code_that_a_guarded_pass_removes(watch: Watch) -> None:
    watch.before("Sequential", BEFORE)
    watch.before("no_touch(DeadCodeElimination)", BEFORE)
    watch.after("no_touch(DeadCodeElimination)", {"convoy_0": "conv"})
    watch.after("Sequential", {"convoy_0": "conv"})
    watch.before("DeadCodeElimination", BEFORE)
    with pytest.raises(GuardError):
        watch.after("DeadCodeElimination", {"convoy_0": "conv"})


class Made:
    """A function that is another object each time it is made, and hashes by what it says."""

    def __init__(self, text: str) -> None:
        self.text = text


def test_what_a_maker_consumes_may_have_been_made_anew_before() -> None:
    watch = Watch(["Lower"], dict, lambda made: hash(made.text), "guard it", len)
    old, new = Made("conv"), Made("conv")
    watch.before("Sequential", {"convoy_0": old})
    watch.before("Renew", {"convoy_0": old})
    watch.after("Renew", {"renamed": new})
    watch.before("Lower", {"renamed": new})
    watch.after("Lower", {})
    watch.after("Sequential", {})
    assert watch.running == []
