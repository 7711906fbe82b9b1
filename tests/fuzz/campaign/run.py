"""A campaign: bundle after bundle through a door, until time or networks are used up.

Network ``i`` of seed ``S`` is the same on every machine; ``S:i`` names it.  Bundle ``k`` holds the networks
from ``k * NETWORKS`` on, and draws how they are compiled.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from convoy.options import Precision
from fuzz.campaign.case import Case, draw_case, write_case
from fuzz.campaign.crew import Crew, in_words
from fuzz.campaign.shrink import shrink
from worker import Crash

BUNDLE_SECONDS = 600.0
"""Time limit of a bundle: a crowded machine, not a slow bundle, is what uses it."""
ONE_SECONDS = 180.0
SHRINK_SECONDS = 240.0
SHRINKS = 40
"""Failures that are shrunk; more of them are only kept."""


@dataclass
class Failure:
    seed: str
    """``S:i``, with a ``t`` for its twin."""
    case: Case
    kind: str
    """wrong, error, or crash (which a hang is, too)."""
    reason: str
    tvm_too: str | None = None
    """Why plain TVM fails at it as well, if it does."""
    file: str = ""
    """The network, shrunk, with the case in its metadata."""

    @property
    def signature(self) -> str:
        """Equal for failures that are likely one defect."""
        reason = re.sub(r"n[0-9]+_[A-Za-z0-9_]*|[0-9]+", "#", self.reason)
        return f"{self.case.door} {self.kind} {reason[:120]}"

    @property
    def named(self) -> str:
        """What ``--replay`` takes."""
        return self.file or self.seed


@dataclass
class Tally:
    """What has been done; every network counted was compiled, run and compared."""

    networks: int = 0
    nodes: int = 0
    twins: int = 0
    refused: int = 0
    """Networks that ONNX Runtime does not run, or whose values are not finite."""
    rounding: int = 0
    """Differences past the promise that float64 shows to be rounding."""
    by: Counter[str] = field(default_factory=Counter)
    """Networks by door, target, threads, compiler level and the rest."""
    failures: list[Failure] = field(default_factory=list)

    @property
    def ours(self) -> list[Failure]:
        """Those that plain TVM does not share."""
        return [f for f in self.failures if f.tvm_too is None]


class Campaign:
    """Parameters
    ----------
    folder : where failures and the summary go
    doors : to draw from
    say : called with each line for the reader
    always : what all networks are: ``quantised``, ``sides``
    precision : that of all cases, which are for this machine's CPU if it is not float32
    """

    def __init__(
        self,
        seed: int,
        folder: Path,
        doors: tuple[str, ...],
        say: Callable[[str], None],
        *,
        always: tuple[str, ...] = (),
        precision: Precision = "float32",
    ) -> None:
        self.seed, self.folder, self.doors, self.say = seed, folder, doors, say
        self.always, self.precision = always, precision
        self.tally = Tally()
        self.stop = threading.Event()
        self._next = 0
        self._lock = threading.Lock()
        self._shrinks = 0
        self._scratch = Path(tempfile.mkdtemp(prefix="convoy-fuzz-"))
        self._crews: list[Crew] = []
        self._begun = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, *, seconds: float, networks: float, processes: int = 1) -> None:
        """Until one of both is used up; ``KeyboardInterrupt`` ends it in good order."""
        end = time.monotonic() + seconds

        def work() -> None:
            crew = Crew()
            self._crews.append(crew)
            while not self.stop.is_set() and time.monotonic() < end and self.tally.networks < networks:
                with self._lock:
                    number, self._next = self._next, self._next + 1
                self._run_bundle(crew, number)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(processes)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.5)
        except KeyboardInterrupt:
            self.say("stopped")
        finally:
            self.stop.set()
            for crew in self._crews:
                crew.end()
            shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def case_of(self, bundle: int) -> Case:
        case = draw_case(np.random.default_rng([self.seed, bundle, 1]), self.doors)
        if self.precision != "float32":
            case = replace(case, precision=self.precision, target="host")
        return case

    def _run_bundle(self, crew: Crew, bundle: int) -> None:
        folder = self._scratch / str(bundle)
        folder.mkdir()
        networks = crew.oracle("prepare", (self.seed, bundle, str(folder), self.always), BUNDLE_SECONDS)
        if isinstance(networks, Crash):
            self.say(f"bundle {bundle} could not be made: {in_words(networks)}")
            return
        case = self.case_of(bundle)
        valid = {n["number"]: n for n in networks if not n["refused"]}
        # classic TVM fails at so many networks with an open batch that few belong together
        size = 4 if case.door == "relay" and case.leave_open else len(valid)
        found: dict[int, tuple[str, str]] = {}
        for begin in range(0, len(valid), max(size, 1)):
            found |= self._split(crew, folder, tuple(valid)[begin : begin + size], case)
        if self.stop.is_set():
            return
        own = [n for n in valid.values() if n["of"] is None]
        with self._lock:
            tally = self.tally
            tally.networks += len(own)
            tally.twins += len(valid) - len(own)
            tally.nodes += sum(n["nodes"] for n in own)
            tally.refused += sum(n["of"] is None for n in networks) - len(own)
            for key in (case.door, case.target, f"{case.threads} threads", case.optimise,
                        *["integers"] * case.integers,
                        *["shipped"] * case.shipped, *["guarded passes"] * bool(case.passes)):  # fmt: skip
                tally.by[key] += len(own)
        for number, (kind, reason) in found.items():
            self._take(
                crew, folder, number, Failure(f"{self.seed}:{valid[number]['name']}", case, kind, reason)
            )
        shutil.rmtree(folder, ignore_errors=True)
        self.say(self.progress())

    def progress(self) -> str:
        t = self.tally
        return (
            f"{t.networks} networks, {t.networks / max(self.seconds, 1):.1f} a second, "
            f"{len(t.ours)} failures, {len(t.failures) - len(t.ours)} shared with TVM"
        )

    def _split(
        self, crew: Crew, folder: Path, numbers: tuple[int, ...], case: Case
    ) -> dict[int, tuple[str, str]]:
        """What became of networks compiled as one model; where nothing ran, of each half of them."""
        if self.stop.is_set() or not numbers:
            return {}
        outcome = crew.judge(folder, numbers, case, BUNDLE_SECONDS if len(numbers) > 1 else ONE_SECONDS)
        if isinstance(outcome, dict):
            return {
                number: ("wrong", reason)
                for number, reason in outcome.items()
                if not self._is_rounding(crew, folder, number, case)
            }
        if len(numbers) == 1:
            crashed = isinstance(outcome, Crash)
            return {numbers[0]: ("crash", in_words(outcome)) if crashed else ("error", str(outcome))}
        half = len(numbers) // 2
        parts = (self._split(crew, folder, part, case) for part in (numbers[:half], numbers[half:]))
        return {number: outcome for part in parts for number, outcome in part.items()}

    def _is_rounding(self, crew: Crew, folder: Path, number: int, case: Case) -> bool:
        task = (str(folder), number, str(folder / f"{number}-got.npz"), case.precision)
        found = crew.oracle("is_rounding", task) is True
        self.tally.rounding += found
        return found

    # A failure.

    def _take(self, crew: Crew, folder: Path, number: int, failure: Failure) -> None:
        """Ask plain TVM, shrink the network, keep it."""
        alone = self._split(crew, folder, (number,), failure.case)
        if self.stop.is_set():
            return
        if number in alone:
            failure.kind, failure.reason = alone[number]
            failure.tvm_too = crew.judge_plain_tvm(folder, number, failure.case, ONE_SECONDS, failure.kind)
        else:
            failure.reason += " (only beside other networks)"
        known = {f.signature for f in self.tally.failures}
        new = failure.kind != "error" or failure.signature not in known
        model = onnx.load(folder / f"{number}.onnx")
        case = failure.case
        if failure.tvm_too is None and new:
            self.say(f"{failure.seed}: {failure.kind}: {failure.reason}")
            if number in alone and self._shrinks < SHRINKS:
                self._shrinks += 1
                model, case = self._shrink(crew, folder, model, failure)
            name = f"{failure.seed.replace(':', '-')}-{case.door}-{failure.kind}.onnx"
            write_case(model, case, seed=failure.seed, found=failure.reason)
            onnx.save(model, self.folder / name)
            failure.file = str(self.folder / name)
            self.say(f"  {len(model.graph.node)} nodes; replay with scripts/fuzz --replay {failure.file}")
        with self._lock:
            self.tally.failures.append(failure)

    def _shrink(self, crew: Crew, folder: Path, model: onnx.ModelProto, failure: Failure) -> Any:
        end = time.monotonic() + SHRINK_SECONDS
        number = 1000

        def fails(smaller: onnx.ModelProto, case: Case) -> bool:
            if time.monotonic() > end or self.stop.is_set():
                return False
            onnx.save(smaller, folder / f"{number}.onnx")
            if crew.oracle("check_job", (str(folder), number)) is not None:
                return False
            found = self._split(crew, folder, (number,), case).get(number)
            if found is None or found[0] != failure.kind:
                return False
            if failure.kind == "error":
                alike = Failure(failure.seed, case, *found).signature == failure.signature
            else:  # its own defect, not one of TVM's that it runs into on the way
                alike = crew.judge_plain_tvm(folder, number, case, ONE_SECONDS, failure.kind) is None
            return alike

        return shrink(model, failure.case, fails)

    def summary(self) -> dict[str, Any]:
        t = self.tally
        alike = Counter(f.signature for f in t.failures if f.tvm_too is not None)
        return {
            "seed": self.seed,
            "seconds": round(self.seconds),
            "networks": t.networks,
            "networks a second": round(t.networks / max(self.seconds, 1), 2),
            "nodes": t.nodes,
            "twins": t.twins,
            "refused by ONNX Runtime": t.refused,
            "rounding": t.rounding,
            "networks by": dict(sorted(t.by.items())),
            "failures": [{**asdict(f), "case": f.case.text} for f in t.ours],
            "failures plain TVM shares": dict(alike.most_common()),
            "examples of those": {
                f.signature: f"{f.seed}: {f.tvm_too}" for f in t.failures if f.tvm_too is not None
            },
        }

    def write_summary(self) -> Path:
        path = self.folder / f"summary-{self.seed}.json"
        path.write_text(json.dumps(self.summary(), indent=1) + "\n")
        return path
