"""offload/names.py, strict.py: names a user may give, and what is switched off by them."""

from __future__ import annotations

from typing import Any

import pytest

from convoy.errors import ConvoyError, RefusedError
from convoy.offload.names import check_codegen, check_names, check_refuse, stem, switched_off
from convoy.offload.strict import check_strict
from convoy.options import Options
from convoy.report.decision import Report

PATTERNS = frozenset(["convoy.conv2d", "convoy.conv2d_bias", "convoy.conv2d_bias_relu", "convoy.softmax"])
OPS = ("nn.conv2d", "nn.softmax")


def check(**options: Any) -> None:
    names = {key: frozenset(value) for key, value in options.items()}
    check_names(Options(**names), PATTERNS, OPS, ["conv2d c1", "softmax s"], prefix="relax.")


def test_names_that_exist() -> None:
    check(disabled_patterns=["convoy.conv2d_bias"])
    check(disabled_ops=["nn.conv2d", "softmax", "relax.nn.softmax"])
    check(exclude=["conv2d c1"])
    check()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"disabled_patterns": ["convoy.conv2d_relu_bias"]}, "expected a pattern such as convoy.conv2d,"),
        ({"disabled_patterns": ["convoy.x"]}, "pattern 'convoy.x'"),
        ({"disabled_ops": ["tile"]}, "op 'tile': expected an op Convoy takes such as nn.softmax; correct"),
        (
            {"disabled_ops": ["conv"]},
            "op 'conv': expected an op Convoy takes such as conv2d, nn.conv2d; correct",
        ),
        ({"disabled_ops": ["relay.nn.conv2d"]}, "op 'relay.nn.conv2d'"),
        ({"exclude": ["conv2d c2"]}, "such as conv2d c1, softmax s"),
    ],
    ids=str,
)
def test_a_slip_is_an_error_that_names_what_is_near(options: dict, words: str) -> None:
    with pytest.raises(ConvoyError) as raised:
        check(**options)
    assert words in str(raised.value)


def test_what_is_switched_off_by_each_of_its_names() -> None:
    for name in ("nn.conv2d", "conv2d", "relax.nn.conv2d"):
        options = Options(disabled_ops=frozenset([name]))
        assert switched_off(options, "nn.conv2d", [], prefix="relax.") == "op nn.conv2d is switched off"
        assert switched_off(options, "nn.softmax", [], prefix="relax.") is None
    excluded = Options(exclude=frozenset(["c1"]))
    assert switched_off(excluded, "nn.conv2d", ["lv", "c1"], prefix="relax.") == "excluded by name"
    assert switched_off(excluded, "nn.conv2d", ["lv"], prefix="relax.") is None


def test_the_stem_of_a_name() -> None:
    assert [stem(name) for name in ("nn.conv2d", "add", "image.resize2d")] == ["conv2d", "add", "resize2d"]


@pytest.mark.parametrize("name", ["acme", "my_npu2", "convoy"])
def test_a_codegen_is_an_identifier(name: str) -> None:
    check_codegen(name)


@pytest.mark.parametrize("name", ["", "my npu", "2x", "default", "ünit", None], ids=repr)
def test_what_is_none_is_refused(name: Any) -> None:
    with pytest.raises(ConvoyError, match="partition: codegen"):
        check_codegen(name)


def test_a_refuse_is_a_function() -> None:
    check_refuse(lambda call: None)
    with pytest.raises(ConvoyError, match="got an object of type list"):
        check_refuse([])


def test_strict_raises_the_first_refusal_and_no_choice() -> None:
    report = Report()
    report.add("conv2d a", "plan", "direct", "it is the fastest", 1.0)
    check_strict(Options(strict=True), report.decisions)
    report.add("softmax b", "annotate", "left", "expected float32, got float16")
    report.add("tanh c", "annotate", "left", "another reason")
    refused = [decision.node for decision in report.decisions if decision.refused]
    assert refused == ["softmax b", "tanh c"]
    check_strict(Options(), report.decisions)
    with pytest.raises(RefusedError, match=r"annotate: softmax b: expected float32, got float16"):
        check_strict(Options(strict=True), report.decisions)
