"""Some damaged models, and what the judge must not let pass; ``scripts/mutants`` runs a thousand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mutants.judge import unclear
from mutants.mutant import make_mutant
from mutants.run import run_mutants


@pytest.mark.slow
def test_damaged_models_get_one_clear_line_or_the_right_answer() -> None:
    verdicts = list(run_mutants(range(9000, 9020), processes=1, seconds=300))
    assert [verdict for verdict in verdicts if not verdict.good] == []
    kinds = {verdict.kind for verdict in verdicts}
    assert {"refused", "right"} <= kinds, "the sample says nothing of the one or the other"


@pytest.mark.slow
def test_a_seed_gives_the_same_mutant(tmp_path: Path) -> None:
    for seed in range(6):
        first, again = (make_mutant(seed, tmp_path / side) for side in ("a", "b"))
        assert first.what == again.what
        if "external" not in first.what:  # which names this test's own folder
            assert first.path.read_bytes() == again.path.read_bytes()


@pytest.mark.slow
def test_seeds_give_different_mutants(tmp_path: Path) -> None:
    found = {make_mutant(seed, tmp_path).what for seed in range(20)}
    assert len(found) == 20


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import: m.onnx: expected a graph, got none; export it again", ""),
        ("import: m.onnx: expected a graph,\ngot none; export it again", "more than one line"),
        (
            "import: \x1b[2J: expected a graph, got none; export it",
            "characters that no terminal should get",
        ),
        (f"import: m: expected a graph, got {'x' * 3000}; export it", "a line of"),
        ("list index out of range", "not in the form"),
    ],
)
def test_what_a_clear_line_is(text: str, problem: str) -> None:
    assert unclear(text).startswith(problem)
    assert bool(unclear(text)) == bool(problem)


@pytest.mark.slow
def test_an_answer_that_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mutants import judge

    seed = 1
    monkeypatch.setattr("mutants.mutant.SHARES", {"structure": 1.0})
    monkeypatch.setattr("mutants.mutant.MUTATIONS", (lambda model, rng: "nothing",))
    assert judge.judge_convoy(seed, tmp_path).kind == "answered"
    place = tmp_path / str(seed) / "answers.npz"
    kept = dict(np.load(place))
    assert judge.judge_answer(seed, "nothing", tmp_path).kind == "right"
    kept["answer0"] = kept["answer0"] * 1.01
    np.savez(place, **kept)
    assert judge.judge_answer(seed, "nothing", tmp_path).kind == "FOUND"
