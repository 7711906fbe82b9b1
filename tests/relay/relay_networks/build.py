"""A network through Relay's build, with Convoy and without, as libraries in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from relay_networks.networks import load
from tvm import relay
from tvm.contrib import graph_executor

import convoy.relay
from convoy.relay.codegen import system_cpu
from convoy.report.decision import Report


@dataclass(frozen=True)
class Offload:
    """What Convoy took of a network."""

    flops_share: float
    regions: int
    left: int
    """Ops that stay with TVM."""


def build_with_convoy(name: str, file: Path) -> Offload:
    """``relay.build`` with the target ``convoy``, exported to ``file``."""
    report = Report()
    with convoy.relay.using(report=report), tvm.transform.PassContext(opt_level=3):
        relay.build(load(name), target="convoy").export_library(str(file))
    return Offload(report.flops_share, len(report.regions), len(report.refusals))


def build_plain(name: str, file: Path, opt_level: int) -> None:
    """TVM's own build for this machine's processor, exported to ``file``."""
    with tvm.transform.PassContext(opt_level=opt_level):
        relay.build(load(name), target=f"llvm -mcpu={system_cpu()}").export_library(str(file))


def open_library(file: Path) -> graph_executor.GraphModule:
    """A library ready to run, its input seeded and random."""
    executor = graph_executor.GraphModule(tvm.runtime.load_module(str(file))["default"](tvm.cpu()))
    shape = executor.get_input("x0").shape
    executor.set_input("x0", np.random.default_rng(1).standard_normal(shape).astype(np.float32))
    return executor
