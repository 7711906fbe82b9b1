"""Pages: what is on them, that they need nothing else, and that names in a model stay names."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from command import tiny_model
from convoy.report.decision import Report
from convoy.report.fused import make_fused_model
from convoy.report.pages.content import explain_content
from convoy.report.pages.page import SCRIPTS, make_page

PAGES = Path(convoy.__file__).parent / "report" / "pages"
HOSTILE = "</script><script>alert(1)</script><!-- \"'\x1b[31m\n&lt;\u202e\u2028{{ 7 * 7 }}"


def explained(model: onnx.ModelProto) -> dict[str, Any]:
    report = Report()
    convoy.compile(model, report=report)
    return explain_content(report, "tiny.onnx")


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return explained(tiny_model(extra="Hardmax"))


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the text of its script elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script":
            self.scripts[-1] += data


def test_kernels_and_ops_that_were_left_are_joined_as_data_flows(content: dict[str, Any]) -> None:
    nodes = {node["id"]: node for node in content["nodes"]}
    (conv,) = (n for n in nodes.values() if "conv2d conv0" in n["ops"] and n["flops"])
    assert "relu relu0" in conv["ops"]
    assert (conv["kind"], conv["shape"], conv["dtype"]) == ("step", "1×16×8×8", "float32")
    assert "cv_conv2d_direct" in conv["source"]
    assert any(d["step"] == "plan" and "estimated kilocycles" in d["reason"] for d in conv["decisions"])
    (left,) = (n for n in nodes.values() if n["ops"] == ["argmax hardmax"])
    assert any(d["choice"] == "left" for d in left["decisions"])
    readers: dict[str, set[str]] = {}
    for source, reader in content["edges"]:
        readers.setdefault(source, set()).add(reader)
    reached, found = [n["id"] for n in nodes.values() if n["kind"] == "input"], set()
    while reached:
        found.add(reached[-1])
        reached += readers.get(reached.pop(), set()) - found
    assert {conv["id"], left["id"]} <= found
    assert [row["reason"] for row in content["left"]]


def test_the_arena_never_holds_two_at_one_place(content: dict[str, Any]) -> None:
    (region,) = content["regions"]
    assert region["held"]
    for a in region["held"]:
        for b in region["held"]:
            together = a["first"] <= b["last"] and b["first"] <= a["last"]
            apart = a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"]
            assert a == b or not together or apart


def test_a_page_needs_nothing_beside_it(content: dict[str, Any]) -> None:
    page = make_page(content)
    for tag, attributes in Elements(page).found:
        assert not {"src", "href", "srcset", "data"} & set(attributes), tag
    assert not re.search(r"@import|url\((?!data)|fetch\(|XMLHttpRequest|WebSocket|sourceMappingURL", page)
    assert "Permission is hereby granted" in page  # dagre's licence goes with it


@pytest.mark.slow
def test_names_of_a_model_are_neither_html_nor_script() -> None:
    model = tiny_model(extra="Hardmax")
    for node in model.graph.node:
        node.name = f"{node.name}{HOSTILE}"
    content = explained(model)
    page = make_page({**content, "title": HOSTILE})
    plain = Elements(make_page(explained(tiny_model(extra="Hardmax"))))
    found = Elements(page)
    assert [tag for tag, _ in found.found] == [tag for tag, _ in plain.found]
    (data,) = (json.loads(s) for s in found.scripts if s.startswith("{"))
    assert any("</script>" in op for node in data["nodes"] for op in node["ops"])
    texts = json.dumps(data, ensure_ascii=False)
    assert not {"\x1b", "\u202e", "\u2028"} & set(texts)
    assert not re.search(
        r"[<>&\x00-\x09\x0b-\x1f\x7f-\uffff]", page.split('id="content">')[1].split("</script>")[0]
    )


def luminance(colour: str) -> float:
    """Of ``#rrggbb``, as WCAG defines it."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_what_is_written_on_a_node_can_be_read_in_light_and_in_dark() -> None:
    schemes = re.findall(r"\{([^{}]*--on:[^{}]*)\}", (PAGES / "page.css").read_text())
    assert len(schemes) == 3
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#\w{6})", scheme))
        text = luminance(colours["on"])
        behind = {name: luminance(c) for name, c in colours.items() if re.fullmatch(r"c\d+|tvm|high", name)}
        assert len(behind) == 14
        contrast = {name: (max(one, text) + 0.05) / (min(one, text) + 0.05) for name, one in behind.items()}
        assert {name: ratio for name, ratio in contrast.items() if ratio < 4.5} == {}


def test_numbers_that_json_has_not_are_left_out() -> None:
    page = make_page({"title": "t", "figures": [float("nan"), float("inf"), 1.5]})
    assert '"figures": [null, null, 1.5]' in page


@pytest.mark.parametrize("name", [name for name in SCRIPTS if not name.startswith("dagre")])
def test_scripts_write_text_and_never_html(name: str) -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setHTML"
    assert not re.search(forbidden, (PAGES / name).read_text())


def test_the_template_trusts_nothing_but_our_own_files_and_page_json() -> None:
    template = (PAGES / "page.html").read_text()
    assert set(re.findall(r"\{\{ (\w+) \| safe \}\}", template)) == {"style", "script", "content"}


def chain_model(count: int) -> onnx.ModelProto:
    """So many convolutions in a row: their results take turns in the same memory."""
    names = [f"t{i}" for i in range(count + 1)]
    nodes = [
        helper.make_node("Conv", [a, "w"], [b], name=f"conv_{b}", pads=[1] * 4)
        for a, b in itertools.pairwise(names)
    ]
    weight = np.ones((8, 8, 3, 3), np.float32)
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8, 9, 9]) for n in (names[0], names[-1])
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_memory_that_is_used_again_joins_no_kernels() -> None:
    content = explained(chain_model(5))
    computing = [node["id"] for node in content["nodes"] if node.get("flops")]
    assert len(computing) == 5
    joined = [(a, b) for a, b in content["edges"] if a in computing and b in computing]
    assert joined == list(itertools.pairwise(computing))


def test_the_fused_network_is_onnx_with_domains_of_its_own(content: dict[str, Any]) -> None:
    model = onnx.load_from_string(make_fused_model(content).SerializeToString())
    onnx.checker.check_model(model)
    (conv,) = (n for n in model.graph.node if n.domain == "convoy" and n.op_type.startswith("direct"))
    found = {a.name: helper.get_attribute_value(a) for a in conv.attribute}
    assert found["ops"] == [b"conv2d conv0", b"relu relu0"]
    assert {"kernel", "tile", "estimated_ms", "region", "step"} <= set(found)
    left = [n.op_type for n in model.graph.node if n.domain == "tvm"]
    assert {"argmax", "arange", "equal", "astype"} < set(left)
    assert left[-1] == "nn_softmax"
    assert [value.name for value in model.graph.input] == ["main: x"]
    assert len(model.graph.output) == 1
