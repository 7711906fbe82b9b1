"""``convoy doctor``: what is here, what is missing, and what to do."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which
from typing import Annotated

import typer

import convoy
from convoy import target
from convoy.cli.console import print_json, say
from convoy.errors import ConvoyError
from convoy.installed import door, find_tvm, version_fault
from convoy.report.text import format_bytes
from convoy.target.this_machine import describe_cpu
from convoy.toolchain.cache import open_cache
from convoy.toolchain.driver import ask, find_compiler

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON, for programs.")]
WANTED = {
    "onnxruntime": ("check", "check, bisect and bench compare with it"),
    "openvino": ("bench", "bench compares with it"),
    "ncnn": ("bench", "bench compares with it"),
    "pnnx": ("", "makes networks that ncnn reads, for bench"),
    "matplotlib": ("bench", "draws the pictures of bench"),
    "pillow": ("image", "reads images, for run --image"),
    "torch": ("torch", "networks of PyTorch, torch.compile"),
    "onnxscript": ("torch", "imports networks of PyTorch through ONNX"),
    "ray": ("ray", "data sets on many machines"),
    "mlserver": ("serve", "answers requests over the network"),
    "mkdocs-material": ("docs", "makes a site of the pages in docs"),
    "mkdocstrings": ("docs", "makes the site's reference"),
}
"""Packages that parts of Convoy want: the extra of each, and what it is for; pnnx has none, as it would
bring torch."""


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    what: str
    found: str
    todo: str = ""
    """What to do; empty: nothing."""
    needed: bool = False
    """Nothing compiles without it."""


def examine(as_json: Json = False) -> None:
    """Say what is here, what is missing, and what to do.

    The exit code is 1 if something is missing without which no network compiles.

    Examples:

    \b
      convoy doctor
      convoy doctor --json
    """
    findings = list(find_all())
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            say(f"{finding.what:{width}}  {finding.found}{finding.todo and f' → {finding.todo}'}")
    missing = [finding.what for finding in findings if finding.needed and finding.todo]
    if missing:
        say(f"no network compiles without: {', '.join(missing)}")
        raise typer.Exit(1)


def find_all() -> Iterator[Finding]:
    """Every finding, in the order of the table."""
    yield Finding("Convoy", f"{convoy.__version__}, Python {platform.python_version()}")
    yield _find_tvm()
    yield from _find_toolchain()
    yield _find_cache()
    yield from _find_machine()
    for package, (extra, use) in WANTED.items():
        how = f"pip install 'convoy-tvm[{extra}]'" if extra else f"pip install --no-deps {package}"
        try:
            yield Finding(package, f"{version(package)}: {use}")
        except PackageNotFoundError:
            yield Finding(package, f"not installed: {use}", f"{how}, if it is wanted")


def _find_tvm() -> Finding:
    folder = find_tvm()
    if folder is None:
        return Finding("TVM", "none", "pip install apache-tvm", needed=True)
    kind = "modern (Relax)" if door() == "relax" else "classic (Relay)"
    try:
        number = version("apache-tvm")
    except PackageNotFoundError:
        number = "of unknown version"
    fault = version_fault()
    return Finding("TVM", f"{number}, {kind}, in {folder}", fault, needed=bool(fault))


def _find_toolchain() -> Iterator[Finding]:
    try:
        compiler = find_compiler()
    except ConvoyError as error:
        yield Finding("C compiler", error.problem, error.remedy, needed=True)
        return
    yield Finding("C compiler", f"{compiler.command[0]}: {compiler.identity}")
    objcopy = ask(compiler.command, "-print-prog-name=objcopy").strip() or "objcopy"
    if which(objcopy) is None:
        yield Finding("objcopy", "none", "install binutils (apt install binutils)", needed=True)


def _find_cache() -> Finding:
    cache = open_cache()
    shown = f"{cache.folder}: {format_bytes(cache.used())} of {format_bytes(cache.limit)}"
    if cache.folder.is_dir() and not os.access(cache.folder, os.W_OK):
        return Finding("cache", shown, "make it writable, or name another folder in CONVOY_CACHE_DIR")
    return Finding("cache", shown)


def _find_machine() -> Iterator[Finding]:
    own = target.host()
    yield Finding("CPU", f"{describe_cpu()}; by LLVM's name {own.name or 'unknown'}")
    if own.isa == "portable":
        yield Finding("vectors", "neither AVX2 nor AVX-512", "expect right answers, and slow ones")
    threads = len(os.sched_getaffinity(0))
    quota = read_quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    cores = f"{own.cores} cores, {threads} of {os.cpu_count()} hardware threads"
    if quota is not None and quota < own.cores:
        yield Finding(
            "cores",
            f"{cores}, a quota of {quota:g}",
            f"networks run on {max(1, int(quota))} threads; give the container more",
        )
    else:
        yield Finding("cores", f"{cores}, no quota below them")
    for name in ("CC", "CONVOY_NUM_THREADS", "TVM_NUM_THREADS", "CONVOY_HUGE_PAGES", "CONVOY_PROBE"):
        if name in os.environ:
            yield Finding(name, f"set to {os.environ[name]}")


def read_quota(root: Path, own: Path) -> float | None:
    """Cores that the process's control groups grant; None: as many as there are.

    Parameters
    ----------
    root : Path
        Where control groups are mounted, as version 2 has them.
    own : Path
        The file that names the process's.
    """
    found: list[float] = []
    with suppress(OSError):
        name = next(
            (line[3:] for line in own.read_text("utf-8").splitlines() if line.startswith("0::")), "/"
        )
        place = root / name.lstrip("/")
        for folder in (place, *place.parents):
            if not folder.is_relative_to(root):
                break
            with suppress(OSError, ValueError):
                quota, period = (folder / "cpu.max").read_text("utf-8").split()
                found.append(int(quota) / int(period))
    return min(found, default=None)
