"""The C compiler: units to objects, objects to one relocatable object or a shared library.

Objects are cached by content: the source, every kernel header, the flags and the compiler.
Linked files are not: weights (``weights.py``) make them large.  They live in the caller's folder or in
that of the process.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache, lru_cache
from pathlib import Path

from convoy.errors import ToolchainError, UnitError
from convoy.target import Target
from convoy.text import c_string
from convoy.toolchain import elf
from convoy.toolchain.cache import Cache, open_cache
from convoy.toolchain.driver import Compiler, ask, find_compiler, run
from convoy.toolchain.made import look_at, run_to_make
from convoy.toolchain.precompiled import intrinsics_flags
from convoy.toolchain.process import stopped_by
from convoy.toolchain.temporary import new_file, unwritable

Progress = Callable[[int, int, str], None]
"""Called with the number of units done, of all units, and the name of the unit just done."""

# The generated loops are written as vectors already: the vectoriser only adds code to scalar tails.
# -fno-semantic-interposition: nobody replaces our functions at load time, so they may be inlined.
# -fno-lto: an object is one, whatever CC carries; what is hidden in it stays so.
FLAGS = (
    "-std=gnu11", "-O2", "-fPIC", "-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-math-errno",
    "-fno-semantic-interposition", "-pthread", "-fno-lto",
)  # fmt: skip

RUNTIME_UNITS = (
    "library.c", "team.c", "arena.c", "cores.c", "pace.c", "weights.c", "amx.c", "environment.c",
)  # fmt: skip
"""Units of csrc/runtime that every region needs."""
_CALL_UNITS = ("arguments.c", "vectors.c")
ENTRY_UNITS = (*_CALL_UNITS, "tvm_entry.c", "tvm_loops.c")
CLASSIC_ENTRY_UNITS = (*_CALL_UNITS, "classic_entry.c")
"""Units of csrc/runtime that only a region needs that a modern or a classic TVM calls."""
TRACE_UNIT = "trace.c"
"""The unit of csrc/runtime for regions that are traced."""

HEADER_ROOMS = ("include", "simd", "kernels", "runtime")
"""Folders of csrc a unit may include from."""

_MARK = '\n__asm__(".globl {0}\\n.hidden {0}\\n.set {0}, 0");\n'
"""At the end of each unit: by this symbol its object is known from that of any other."""
_LINKS_KERNELS = re.compile(r"^#define CV_LINKS_KERNELS 1$", re.MULTILINE)
_KERNELS = re.compile(r'^#include "kernels/(\w+)\.h"$', re.MULTILINE)
_FORM = re.compile(r"^(?=(CV_\w+)\((\w+), )(.*\))$", re.MULTILINE)
_FORMS = re.compile(r"^#define (CV_\w+)\(name, ", re.MULTILINE)
_FORM_UNIT = """\
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_FORMS 1
#include "kernels/{header}.h"
{form}
"""
BFLOAT16_MAPS = "#define CV_BFLOAT16_MAPS 1\n"
_IS_RUNTIME = re.compile(r'^#include "runtime/', re.MULTILINE)


@cache
def kernel_include_dirs() -> list[Path]:
    """The folders a generated unit includes from: of the installed package, or of the checkout.

    Raises
    ------
    ToolchainError
        If the installation lacks them.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "csrc", package.parents[1] / "csrc"):
        if (folder / "include" / "convoy" / "region.h").is_file():
            return [folder / "include", folder]
    raise ToolchainError(
        "compile",
        str(package / "csrc"),
        "expected the kernel headers beside the package, got none",
        "reinstall convoy-tvm",
    )


def runtime_sources(*more: str) -> dict[str, str]:
    """The C units of the runtime by file name, and ``more`` of its folder."""
    folder = kernel_include_dirs()[1] / "runtime"
    return {unit: (folder / unit).read_text("utf-8") for unit in (*RUNTIME_UNITS, *more)}


def kernel_sources(sources: Iterable[str]) -> dict[str, str]:
    """The C units of the kernels, by file name, that units of regions are linked with.

    What is the same in all regions is compiled once, and so is each form that some of them name
    (``CV_SHARED`` and ``CV_FORM`` in ``csrc/simd/simd.h``).
    """
    linked = [source for source in sources if _LINKS_KERNELS.search(source)]
    narrow = [source for source in linked if BFLOAT16_MAPS in source]
    wide = [source for source in linked if BFLOAT16_MAPS not in source]
    return _kernels_of(wide, "", "") | _kernels_of(narrow, BFLOAT16_MAPS, "_bf16")


def _kernels_of(sources: Sequence[str], define: str, suffix: str) -> dict[str, str]:
    """As ``kernel_sources``, each unit with a line before it and a suffix to its name."""
    names: set[str] = set()
    waiting = list(sources)
    while waiting:
        new = set(_KERNELS.findall(waiting.pop())) - names
        names |= new
        waiting += map(_kernel_header, new)
    paths = {name: kernel_include_dirs()[1] / "kernels" / f"{name}.c" for name in sorted(names)}
    units = {name: path.read_text("utf-8") for name, path in paths.items() if path.is_file()}
    for macro, name, form in (found for source in sources for found in _FORM.findall(source)):
        header = _headers_of_forms().get(macro)
        if header is not None:
            units[name] = _FORM_UNIT.format(header=header, form=form)
    return {f"kernels_{name}{suffix}.c": define + text for name, text in units.items()}


@cache
def _kernel_header(name: str) -> str:
    return (kernel_include_dirs()[1] / "kernels" / f"{name}.h").read_text("utf-8")


@cache
def _headers_of_forms() -> dict[str, str]:
    """By the macro that names a form, the header it stands in."""
    folder = kernel_include_dirs()[1] / "kernels"
    headers = {path.stem: _kernel_header(path.stem) for path in folder.glob("*.h")}
    with_forms = {name: text for name, text in headers.items() if "CV_FORM(" in text}
    return {macro: name for name, text in with_forms.items() for macro in _FORMS.findall(text)}


def compile_object(source: str, target: Target, *, name: str = "unit", folder: Path | None = None) -> Path:
    """The object of one C unit, from the cache or compiled.  Parameters as ``compile_objects``."""
    return compile_objects([source], target, names=[name], folder=folder)[0]


def compile_objects(
    sources: Sequence[str],
    target: Target,
    *,
    names: Sequence[str] | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Compile C units in parallel, each unless the cache has it.

    Those of the runtime are compiled for any CPU of the architecture: on one without the region's vectors
    they load, and say so.

    Parameters
    ----------
    sources : Sequence[str]
        Texts of the units.
    target : Target
        Gives the instruction set.
    names : Sequence[str] | None
        Names of the units, for messages and progress; by default their number.
    folder : Path | None
        The cache's folder; None: the user's.
    progress : Progress | None
        Called in this thread after each unit.

    Returns
    -------
    list[Path]
        The objects, in the order of the sources; not to be changed.

    Raises
    ------
    ToolchainError
        If there is no compiler, it hangs or writes something else, or the disk is full.
    UnitError
        If it rejects a unit (the first one).
    """
    compiler = find_compiler()
    entries = open_cache(folder)
    called = names or [f"unit {i}" for i in range(len(sources))]
    everywhere = (*FLAGS, *compiler.guards)
    here = (*everywhere, *compiler.known(target.flags))
    headers = _headers_hash()
    results: dict[int, Path] = {}
    stop = threading.Event()

    def compile_unit(i: int) -> Path:
        flags = everywhere if _IS_RUNTIME.search(sources[i]) else here
        return _compile(sources[i], called[i], compiler, flags, headers, entries, stop)

    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        jobs = {pool.submit(compile_unit, i): i for i in range(len(sources))}
        try:
            for job in as_completed(jobs):
                results[jobs[job]] = job.result()
                if progress is not None:
                    progress(len(results), len(sources), called[jobs[job]])
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    entries.trim()
    for i in [i for i, made in results.items() if not made.is_file()]:
        results[i] = compile_unit(i)  # somebody removed the cache meanwhile
    return [results[i] for i in range(len(sources))]


def _compile(
    source: str,
    name: str,
    compiler: Compiler,
    flags: Sequence[str],
    headers: str,
    entries: Cache,
    stop: threading.Event,
) -> Path:
    basis = [compiler.identity, *compiler.command, *flags, headers, _MARK, source]
    key = hashlib.sha256("\0".join(basis).encode()).hexdigest()
    mark = f"convoy_unit_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    includes = [f"-I{folder}" for folder in kernel_include_dirs()]

    def make(path: Path) -> None:
        parsed = intrinsics_flags(source, compiler, flags, entries)
        command = [*compiler.command, *flags, *includes, *parsed, "-x", "c", "-c", "-", "-o", str(path)]
        path.unlink()  # the cache's own, empty: whether the compiler makes one shows
        with stopped_by(stop):
            outcome = run(command, source + _MARK.format(mark))
        if outcome:
            kept = _keep_rejected(source)
            raise UnitError(
                "compile",
                name,
                "expected a unit the C compiler accepts, got",
                f"read {kept} and report it; the command was: {shlex.join(command[:-4])} -c {kept}",
                f"\n{outcome}\n",
            )
        look_at("compile", name, path, elf.OBJECT, [mark], command)

    return entries.fetch(key, ".o", make)


def _keep_rejected(source: str) -> Path | str:
    """A copy of a rejected unit that outlives this process, for the reader of the error."""
    try:
        handle, name = tempfile.mkstemp(prefix="convoy-rejected-", suffix=".c")
        with os.fdopen(handle, "w") as file:
            file.write(source)
    except OSError:
        return "the source (which could not be kept: no space for it)"
    return Path(name)


def embed_section(name: str, data: bytes, *, output: Path) -> Path:
    """An object with one section, which is read from the file and takes no memory where it runs.

    Parameters
    ----------
    name : str
        The section's.
    data : bytes
        What stands in it.

    Raises
    ------
    ToolchainError
        If it cannot be written.
    """
    binary = output.with_suffix(".bin")
    assembly = f"""\
    .section {name},"",%progbits
    .incbin {c_string(str(binary))}
    .section .note.GNU-stack,"",%progbits
"""
    try:
        binary.write_bytes(data)
        command = [*find_compiler().command, "-x", "assembler", "-c", "-", "-o", str(output)]
        run_to_make(command, f"section {name}", output, elf.OBJECT, [], text=assembly)
    except OSError as problem:
        raise unwritable(output.parent, problem) from problem
    finally:
        binary.unlink(missing_ok=True)
    return output


def link_relocatable(
    objects: Sequence[Path], exports: Sequence[str], *, output: Path | None = None
) -> Path:
    """Join objects into one, in which only ``exports`` are visible to other objects.

    Everything else, the runtime too, becomes local: two such objects in one library, or two
    libraries in one process, share nothing.

    Raises
    ------
    ToolchainError
        If the linker fails or the disk is full.
    """
    compiler = find_compiler()
    path = output or new_file(".o")
    objcopy = ask(compiler.command, "-print-prog-name=objcopy").strip() or "objcopy"
    if shutil.which(objcopy) is None:
        raise ToolchainError(
            "link",
            "objcopy",
            "expected it beside the linker, got none",
            "install binutils (apt install binutils)",
        )
    try:
        run_to_make(
            [*compiler.command, "-r", "-nostdlib", "-o", str(path), *map(str, objects)],
            "relocatable object",
            path,
            elf.OBJECT,
            exports,
            inputs=objects,
        )
        kept = [f"--keep-global-symbol={symbol}" for symbol in exports]
        run_to_make([objcopy, *kept, str(path)], "relocatable object", path, elf.OBJECT, exports)
    except OSError as problem:
        raise unwritable(path.parent, problem) from problem
    return path


def link_shared(objects: Sequence[Path], *, output: Path | None = None) -> Path:
    """Link objects into a shared library whose references to itself stay inside it.

    Raises
    ------
    ToolchainError
        If the linker fails or the disk is full.
    """
    path = output or new_file(".so")
    command = [*find_compiler().command, "-shared", "-pthread", "-Wl,-Bsymbolic", "-Wl,-z,noexecstack"]
    command += ["-o", str(path), *map(str, objects), "-lm"]
    try:
        run_to_make(command, "shared library", path, elf.LIBRARY, inputs=objects)
    except OSError as problem:
        raise unwritable(path.parent, problem) from problem
    return path


def _headers_hash() -> str:
    """Hash of all kernel headers: a unit may include any of them."""
    folder = kernel_include_dirs()[1]
    headers = sorted(path for room in HEADER_ROOMS for path in (folder / room).rglob("*.h"))
    return _hash_files(tuple((path, path.stat().st_mtime_ns) for path in headers), folder)


@lru_cache(maxsize=4)
def _hash_files(files: tuple[tuple[Path, int], ...], folder: Path) -> str:
    digest = hashlib.sha256()
    for path, _ in files:
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
