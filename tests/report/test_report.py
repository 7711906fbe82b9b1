"""A report as text."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from convoy.report.decision import RegionReport, Report, count_ops, group_refusals, summarize
from convoy.report.text import describe_report


def example() -> Report:
    report = Report(flops_total=2_000_000_000, flops_offloaded=1_980_000_000)
    report.add("batch_norm bn0", "fold", "folded", "into conv2d conv0")
    report.add("conv2d conv0", "annotate", "taken", "convoy.conv2d_bias")
    report.add("topk top", "annotate", "left", "expected an op Convoy computes, got topk")
    report.add("topk next", "annotate", "left", "expected an op Convoy computes, got topk")
    report.add("relu last", "partition", "left", "[alone], not worth a call")
    report.add("conv2d conv0", "plan", "direct", "3x3 with 3 channels")
    report.regions.append(
        RegionReport(
            "convoy_12ab",
            steps=("pack x", "conv2d conv0 direct"),
            kinds=("pack", "direct"),
            ops=("pack", "conv2d"),
            estimates=(1e-5, 2e-3),
            arena_bytes=1 << 20,
            weight_bytes=3 << 20,
            flops=10**9,
            source="int f;",
        )
    )
    return report


def printed(report: Report, *, source: bool = False) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(describe_report(report, source=source), soft_wrap=True)
    return capture.get()


def test_every_decision_is_printed_with_its_reason() -> None:
    text = printed(example())
    for decision in example().decisions:
        if decision.choice != "taken":
            assert decision.node in text
            assert decision.reason in text  # brackets too: reasons are not markup
    assert "conv2d conv0 direct" in text
    assert "weights 3.0 MB, arena 1.0 MB" in text
    assert "int f;" not in text
    assert "int f;" in printed(example(), source=True)


def test_what_can_be_done_about_what_is_left_is_said() -> None:
    assert "convoy profile says what time each takes" in printed(example())
    few = replace(example(), flops_offloaded=example().flops_total - 1)  # numbers of tokens, say
    assert "less than 0.01 % of the FLOPs, beside the regions: nothing needs to be done" in printed(few)
    nothing = printed(Report(flops_total=2, flops_offloaded=2))
    assert "nothing needs" not in nothing
    assert "convoy profile" not in nothing


def test_source_is_printed_as_it_is() -> None:
    line = "  int f; /* " + "a long line, " * 30 + "*/"
    report = example()
    report.regions[0] = replace(report.regions[0], source=f"{line}\nint g;")
    assert f"\n{line}\nint g;\n" in printed(report, source=True)


def test_refusals_are_grouped_by_op_and_reason() -> None:
    assert group_refusals(example()) == [
        (2, "topk", "expected an op Convoy computes, got topk"),
        (1, "relu", "[alone], not worth a call"),
    ]


def test_the_summary_counts_ops_regions_and_flops() -> None:
    assert count_ops(example()) == (1, 3)
    assert str(summarize(example())) == (
        "1 op offloaded in 1 region, 3 left to TVM; 99.00 % of 2.00 GFLOP offloaded"
    )


def test_small_networks_are_not_all_zeros() -> None:
    report = example()
    report.flops_total = 1_250_000
    report.regions[0] = replace(
        report.regions[0], flops=640_000, weight_bytes=3 << 10, estimates=(4e-6, 2e-5)
    )
    text = printed(report)
    for size in ("of 1.25 MFLOP", "0.64 MFLOP", "weights 3.0 KB", "~0.004 ms"):
        assert size in text, text


def test_an_empty_report_says_nothing_happened() -> None:
    assert printed(Report()).count("nothing") == 3


def test_a_report_shows_itself_in_a_line_and_in_a_notebook() -> None:
    report = example()
    report.add("topk <b>", "annotate", "left", "is <i>\n& more")
    assert repr(report) == f"<Report: {summarize(report)}>"
    shown = report._repr_html_()
    assert "<td>2</td><td>topk</td><td>expected an op Convoy computes, got topk</td>" in shown
    assert r"is &lt;i&gt;\n&amp; more" in shown
    assert "<td>convoy_12ab</td><td>2</td><td>1000000000</td>" in shown
    assert "<i>" not in shown
    assert "<table>" not in Report()._repr_html_()


def test_the_c_of_a_region_is_not_in_its_line() -> None:
    assert "int f;" not in repr(example().regions[0])
