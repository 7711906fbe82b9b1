"""The campaign: it finds and shrinks planted defects; a fixed minute of it; what it found stays mended."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from fuzz.campaign import crew, relax_door
from fuzz.campaign.case import Case, read_case
from fuzz.campaign.replay import replay, run_kept
from fuzz.campaign.run import Campaign

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.onnx"))
MINUTE = {"relax": (0, 46), "relay": (3, 14)}
"""Seed and networks of each door: two bundles and one.  They have bytes, open sides and an open batch, and
are for this machine and AVX2.  Their flags are those of other tests, whose kernels are in the cache."""


def run_some(door: str, networks: int, folder: Path, seed: int) -> Campaign:
    campaign = Campaign(seed, folder, (door,), print)
    campaign.run(seconds=600, networks=networks)
    return campaign


@pytest.mark.slow
@pytest.mark.parametrize("door", MINUTE)
def test_a_fixed_minute_finds_nothing(door: str, tmp_path: Path) -> None:
    if door not in crew.doors_there():
        pytest.skip(f"{crew.PYTHONS[door]} is not there: scripts/setup --relay makes it")
    seed, networks = MINUTE[door]
    found = run_some(door, networks, tmp_path, seed)
    assert found.tally.networks >= networks
    assert not found.tally.ours, found.summary()["failures"]


@pytest.mark.slow
def test_kept_networks_are_right() -> None:
    there = [file for file in CORPUS if read_case(onnx.load(file)).door in crew.doors_there()]
    print(f"{len(CORPUS) - len(there)} of {len(CORPUS)} kept networks need a door that is not here")
    assert there
    assert run_kept(there) == {}


@pytest.mark.parametrize("shipped", [False, True])
def test_a_network_runs_as_its_case_says(shipped: bool, tmp_path: Path) -> None:
    # a shipped one ended in an error: no library that is loaded is linked once more
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }'
    )
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    (found,) = relax_door.compute(model, [x], Case(shipped=shipped), tmp_path)
    np.testing.assert_array_equal(found, np.maximum(x, 0))


@pytest.mark.slow
def test_planted_defects_are_found_shrunk_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(crew.PYTHONS, "broken", Path(sys.executable))
    monkeypatch.setitem(crew.STARTS, "broken", "fuzz.campaign.judge:start")
    campaign = run_some("broken", 20, tmp_path, seed=70)
    (path,) = {campaign.write_summary()}
    assert path.is_file()
    kept: dict[str, list[onnx.ModelProto]] = {}
    for failure in campaign.tally.ours:
        if failure.file:
            kept.setdefault(failure.kind, []).append(onnx.load(failure.file))
    assert kept.keys() == {"wrong", "error", "crash"}
    for kind, op in (("wrong", "PRelu"), ("error", "Softplus"), ("crash", "LRN")):
        for model in kept[kind]:
            assert [node.op_type for node in model.graph.node] == [op]
            assert read_case(model).threads == 1
    capsys.readouterr()
    failure = next(f for f in campaign.tally.ours if f.kind == "wrong")
    assert replay(failure.file, ("broken",)) == 1
    assert replay(failure.seed, ("broken",)) == 1
    assert "plain TVM: right" in capsys.readouterr().out
