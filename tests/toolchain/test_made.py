"""What a compiler or linker made is looked at; one that hangs, or only says it succeeded, does no harm."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import struct
import threading
import time
from pathlib import Path

import pytest
from fake_tool import write_tool

from convoy import target
from convoy.deploy.export import link
from convoy.errors import ToolchainError
from convoy.toolchain import compiler, elf
from convoy.toolchain.cache import Cache
from convoy.toolchain.weights import embed_weights

HOST = target.host()
SOURCE = "int answer(void) { return 42; }"
OUTPUT = 'for last; do [ "$before" = -o ] && out=$last; before=$last; done\n'
"""Shell: where the compiler is to write."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / "cache"))


def pretend(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str, when: str = "*") -> Path:
    """Compile with a gcc that runs ``script`` instead where its arguments are like ``when``."""
    known = f'case "$1" in --version|-dump*|-print*) exec gcc "$@";; esac\n{OUTPUT}'
    text = f'{known}case "$*" in {when}) {script};; *) exec gcc "$@";; esac\n'
    monkeypatch.setenv("CC", str(write_tool(folder / "cc", text)))
    return folder / "cc"


def foreign(path: Path, machine: int = 183, kind: int = elf.OBJECT) -> Path:
    """An object of this machine, said to be for another."""
    made = bytearray(compiler.compile_object("int other;", HOST).read_bytes())
    made[16:20] = struct.pack("=HH", kind, machine)
    path.write_bytes(made)
    return path


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("exit 0", "got no file"),
        (': > "$out"', "got an empty file"),
        ('mkfifo "$out"', "no plain file"),
        ('mkdir "$out"', "no plain file"),
        ('ln -s OTHER "$out"', "no plain file"),
        ('echo junk > "$out"', "got 5 bytes of something else"),
        ('printf "\\177ELF" > "$out"', "got one of another word size or byte order"),
        ('gcc "$@"; head -c 300 "$out" > "$out.cut"; mv "$out.cut" "$out"', "ends too soon"),
        ('cp FOREIGN "$out"', "got one for AArch64"),
        ('cp OTHER "$out"', "the symbol convoy_unit_.* in it, got none"),
        ('gcc -shared -fPIC -x c - -o "$out"', "got a shared library"),
    ],
)
def test_what_is_no_object_of_the_unit_is_not_kept(monkeypatch, tmp_path, script, found):
    script = script.replace("FOREIGN", shlex.quote(str(foreign(tmp_path / "foreign.o"))))
    script = script.replace("OTHER", shlex.quote(str(compiler.compile_object("int other;", HOST))))
    tool = pretend(monkeypatch, tmp_path, f"{script}; exit 0")
    with pytest.raises(ToolchainError, match=f"compile: unit_7: expected .*{found}") as caught:
        compiler.compile_objects([SOURCE], HOST, names=["unit_7"])
    text = str(caught.value)
    assert text.isprintable()
    assert f"{tool}, which said it succeeded; try it" in text
    assert "space" not in text
    monkeypatch.setenv("CC", f"{tool}")
    write_tool(tool, 'exec gcc "$@"\n')  # the same compiler by name and version, well again
    made = compiler.link_shared([compiler.compile_object(SOURCE, HOST)])
    assert ctypes.CDLL(str(made)).answer() == 42


@pytest.mark.parametrize(
    ("script", "found"),
    [("exit 0", "no file"), ('echo junk > "$out"; exit 0', "5 bytes of something")],
)
def test_what_is_no_library_is_an_error_of_the_linker(monkeypatch, tmp_path, script, found):
    made = compiler.compile_object(SOURCE, HOST)
    pretend(monkeypatch, tmp_path, script, when="*-shared*")
    with pytest.raises(ToolchainError, match=f"link: shared library: expected a shared library .*{found}"):
        compiler.link_shared([made])
    with pytest.raises(RuntimeError, match=f"expected a shared library .*{found}.* said it succeeded"):
        link(str(tmp_path / "exported.so"), [str(made)])


def test_joined_objects_and_weights_define_what_is_asked_for(monkeypatch, tmp_path):
    made = compiler.compile_object(SOURCE, HOST)
    with pytest.raises(ToolchainError, match="relocatable object: expected the symbol question in it"):
        compiler.link_relocatable([made], ["answer", "question"])
    pretend(monkeypatch, tmp_path, f'cp {made} "$out"; exit 0', when="*-O2*")
    with pytest.raises(ToolchainError, match="weights of r: expected the symbol r_weights in it, got none"):
        embed_weights("r", b"data", HOST)


def test_an_error_of_the_linker_names_the_entry_that_is_to_blame(tmp_path):
    good, bad = compiler.compile_objects([SOURCE, "int second;"], HOST)
    foreign(bad)
    with pytest.raises(ToolchainError, match=f"remove {bad} and try again") as caught:
        compiler.link_shared([good, bad])
    assert f"remove {good}" not in str(caught.value)


def test_an_object_of_the_host_has_no_fault(tmp_path):
    made = compiler.compile_object(SOURCE, HOST)
    assert elf.find_fault(made, elf.OBJECT, ["answer"]) is None
    assert (
        elf.find_fault(made, elf.OBJECT, ["malloc", "answer"])
        == "expected the symbol malloc in it, got none"
    )
    assert elf.find_fault(compiler.link_shared([made]), elf.LIBRARY) is None
    whole = made.read_bytes()
    cut = tmp_path / "cut.o"
    for size in range(0, len(whole), 7):  # no part of an object is one
        cut.write_bytes(whole[:size])
        assert elf.find_fault(cut, elf.OBJECT, ["answer"]) is not None
    for at in range(16, 64):  # nor does a damaged header do more than give a fault
        cut.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        elf.find_fault(cut, elf.OBJECT, ["answer"])


HANG = "sleep 1000 & echo $$ $! > PIDS; wait"


def gone(pids: Path) -> bool:
    """The processes whose numbers are in a file have ended, or wait for init to notice."""
    for pid in pids.read_text().split():
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return False
        except FileNotFoundError:
            continue
    return True


def wait_for(condition) -> bool:
    end = time.monotonic() + 30
    while not (done := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return done


def test_a_compiler_that_hangs_is_ended_with_all_it_started(monkeypatch, tmp_path):
    pids = tmp_path / "pids"
    pretend(monkeypatch, tmp_path, HANG.replace("PIDS", str(pids)))
    monkeypatch.setenv("CONVOY_COMPILER_SECONDS", "0.5")
    with pytest.raises(ToolchainError, match=r"expected it to end within 0.5 s, .*CONVOY_COMPILER_SECONDS"):
        compiler.compile_object(SOURCE, HOST)
    assert wait_for(lambda: gone(pids))
    assert not list((tmp_path / "cache").glob("*/*.o"))


@pytest.mark.slow
def test_a_compiler_that_says_not_even_its_version_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", str(write_tool(tmp_path / "cc", "sleep 1000")))
    monkeypatch.setenv("CONVOY_COMPILER_SECONDS", "0.5")
    with pytest.raises(ToolchainError, match="which does not run"):
        compiler.compile_object(SOURCE, HOST)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_time_limit_is_a_number_of_seconds(monkeypatch, text):
    monkeypatch.setenv("CONVOY_COMPILER_SECONDS", text)
    with pytest.raises(ToolchainError, match=f"CONVOY_COMPILER_SECONDS: expected a number .* got '{text}'"):
        compiler.compile_object(SOURCE, HOST)


@pytest.fixture
def ctrl_c():
    """Python's own handler: a process that was started in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_compilers(monkeypatch, tmp_path, ctrl_c):
    pids = tmp_path / "pids"
    pretend(monkeypatch, tmp_path, HANG.replace("PIDS", str(pids)))

    def interrupt() -> None:
        wait_for(lambda: pids.is_file() and len(pids.read_text().split()) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compiler.compile_object(SOURCE, HOST)
    assert time.monotonic() - start < 60
    assert wait_for(lambda: gone(pids))


def test_an_error_in_one_unit_ends_the_others(monkeypatch, tmp_path):
    pids = tmp_path / "pids"
    script = f"if grep -q wrong; then exit 1; fi; {HANG.replace('PIDS', str(pids))}"
    pretend(monkeypatch, tmp_path, script)
    start = time.monotonic()
    with pytest.raises(ToolchainError, match="exit code 1"):
        compiler.compile_objects(["int wrong;", SOURCE], HOST)
    assert time.monotonic() - start < 60
    assert not pids.exists() or wait_for(lambda: gone(pids))


def test_a_compiler_that_cannot_be_started_is_no_full_disk(monkeypatch, tmp_path):
    tool = pretend(monkeypatch, tmp_path, 'exec gcc "$@"')
    compiler.find_compiler()
    tool.write_bytes(b"\x7fELF no program")
    with pytest.raises(ToolchainError, match=r"cc: expected it to start, got Exec format error"):
        compiler.compile_object(SOURCE, HOST)


def test_an_entry_that_nobody_made_is_not_a_full_disk(tmp_path):
    def make_nothing(path: Path) -> None:
        path.unlink()

    with pytest.raises(ToolchainError, match=r"an entry \*.so: expected a file, got none made"):
        Cache(tmp_path).fetch("ab" + "0" * 62, ".so", make_nothing)
