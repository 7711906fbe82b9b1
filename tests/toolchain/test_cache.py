"""The compile cache: whole entries or none, whatever happens to the folder or the process."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from convoy.errors import ToolchainError
from convoy.toolchain import cache as caches
from convoy.toolchain.cache import Cache, CacheWarning, open_cache

KEY = "ab" + "0" * 62


class Maker:
    """Writes ``content`` and counts how often it was asked to."""

    def __init__(self, content: bytes = b"made") -> None:
        self.content = content
        self.calls = 0

    def __call__(self, path: Path) -> None:
        self.calls += 1
        path.write_bytes(self.content)


def full_disk(path: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_second_fetch_does_not_make(tmp_path):
    maker = Maker()
    first = Cache(tmp_path).fetch(KEY, ".o", maker)
    second = Cache(tmp_path).fetch(KEY, ".o", maker)
    assert first == second
    assert second.read_bytes() == b"made"
    assert maker.calls == 1


@pytest.mark.parametrize(
    "damage", ["truncated", "changed", "emptied", "sum lost", "sum garbled", "removed"]
)
def test_damaged_entry_is_made_again(tmp_path, damage):
    maker = Maker(b"content" * 100)
    path = Cache(tmp_path).fetch(KEY, ".o", maker)
    sum_file = path.with_name(path.name + ".sum")
    {
        "truncated": lambda: path.write_bytes(maker.content[:50]),
        "changed": lambda: path.write_bytes(b"x" + maker.content[1:]),
        "emptied": lambda: path.write_bytes(b""),
        "sum lost": sum_file.unlink,
        "sum garbled": lambda: sum_file.write_bytes(b"\xff\xfe"),
        "removed": path.unlink,
    }[damage]()
    assert Cache(tmp_path).fetch(KEY, ".o", maker).read_bytes() == maker.content
    assert maker.calls == 2


def test_failed_making_leaves_nothing(tmp_path):
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise ToolchainError("compile", "unit", "expected C, got nonsense", "fix it")

    with pytest.raises(ToolchainError, match="nonsense"):
        Cache(tmp_path).fetch(KEY, ".o", fail)
    assert not list((tmp_path / KEY[:2]).iterdir())


@pytest.mark.parametrize("again", [False, True], ids=["gone", "another in its place"])
@pytest.mark.parametrize("error", [ToolchainError("compile", "x", "no", "such file"), FileNotFoundError()])
def test_a_cache_that_is_removed_as_an_entry_is_made_is_made_again(tmp_path, again, error):
    folder = tmp_path / "cache"
    maker = Maker()

    def make(path: Path) -> None:
        if maker.calls == 0:
            maker(path)
            shutil.rmtree(folder)
            if again:
                path.parent.mkdir(mode=0o700, parents=True)
            raise error
        maker(path)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = Cache(folder).fetch(KEY, ".o", make)
    assert path.read_bytes() == b"made"
    assert path.is_relative_to(folder)
    assert maker.calls == 2


def test_an_error_of_a_compiler_is_told_at_once(tmp_path):
    maker = Maker()

    def make(path: Path) -> None:
        maker(path)
        raise ToolchainError("compile", "x", "no", "such file")

    with pytest.raises(ToolchainError, match="compile: x"):
        Cache(tmp_path).fetch(KEY, ".o", make)
    assert maker.calls == 1


def test_least_recently_used_entries_go_first(tmp_path):
    entries = Cache(tmp_path, limit=2500)
    keys = [f"{i:02x}" + "0" * 62 for i in range(4)]
    paths = [entries.fetch(key, ".o", Maker(bytes(1000))) for key in keys]
    long_ago = time.time() - 10 * caches.IN_USE_SECONDS
    for age, path in enumerate(paths):
        for file in (path, path.with_name(path.name + ".sum")):
            os.utime(file, (long_ago + age, long_ago + age))
    entries.fetch(keys[0], ".o", Maker())  # used again: now the youngest
    entries.trim()
    assert [path.exists() for path in paths] == [True, False, False, True]


def test_entries_in_use_stay(tmp_path):
    entries = Cache(tmp_path, limit=0)
    path = entries.fetch(KEY, ".o", Maker())
    entries.trim()
    assert path.exists()


OTHERS = [
    "go/module.go",
    "locks/front_door.txt",
    "ab/notes.txt",
    f"ab/{KEY}",
    f"cd/{KEY}.o",
    "AB/" + KEY.upper() + ".o",
]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_entry_stays(tmp_path, name):
    # CONVOY_CACHE_DIR may name a folder in which a user has files, too
    entries = Cache(tmp_path, limit=0)
    path = entries.fetch(KEY, ".o", Maker())
    unfinished = path.with_name(f".{KEY}.o.made_by_who_was_killed.sum")
    other = tmp_path / name
    other.parent.mkdir(exist_ok=True)
    long_ago = time.time() - 10 * caches.IN_USE_SECONDS
    for file in (path, path.with_name(path.name + ".sum"), unfinished, other):
        file.touch()
        os.utime(file, (long_ago, long_ago))
    entries.trim()
    assert other.exists()
    assert not list((tmp_path / KEY[:2]).glob(f"*{KEY}.o*"))


def test_an_unfinished_entry_is_known_as_one(tmp_path):
    names = []

    def look(path):
        names.append(f"{path.parent.name}/{path.name}")
        path.write_bytes(b"")

    Cache(tmp_path).fetch(KEY, ".o", look)
    assert [bool(caches._ENTRY.match(name)) for name in names] == [True]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free space there"),
        (errno.EROFS, "make it writable"),
        (errno.EACCES, "make it writable"),
    ],
)
def test_the_warning_says_what_helps(tmp_path, monkeypatch, number, remedy):
    def refuse(self, place, *rest):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Cache, "_build", refuse)
    with (
        pytest.warns(CacheWarning, match=f"next time: {remedy}, or name another"),
        pytest.raises(ToolchainError),
    ):
        Cache(tmp_path).fetch(KEY, ".o", Maker())


@pytest.mark.parametrize("place", ["/dev/null", "a file"])
def test_what_is_no_folder_is_not_to_be_removed(tmp_path, place):
    folder = tmp_path / place  # /dev/null itself
    if not folder.exists():
        folder.touch()
        folder.chmod(0o666)
    with pytest.warns(CacheWarning, match="got something there that is no folder.*move away") as caught:
        Cache(folder).fetch(KEY, ".o", Maker()).unlink()  # of this process's temporary folder
    assert "remove" not in str(caught[0].message)


@pytest.mark.parametrize("obstacle", ["a file is in the way", "the disk is full"])
def test_unusable_folder_gives_one_warning_and_a_temporary_entry(tmp_path, monkeypatch, obstacle):
    folder = tmp_path / "cache"
    maker = Maker()
    if obstacle == "a file is in the way":
        folder.write_text("not a folder")
    else:
        build = Cache._build

        def refuse(self, place, *rest):
            return build(self, place, *rest) if place != folder else full_disk(place)

        monkeypatch.setattr(Cache, "_build", refuse)
    entries = Cache(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = entries.fetch("cd" + KEY[2:], ".o", maker)
        again = entries.fetch("cd" + KEY[2:], ".o", maker)
    assert [w.category for w in caught] == [CacheWarning]
    assert "expected a writable folder, got " in str(caught[0].message)
    assert "CONVOY_CACHE_DIR" in str(caught[0].message)
    assert path == again
    assert path.read_bytes() == b"made"
    assert maker.calls == 1
    path.unlink()


def test_read_only_folder_still_serves_what_it_has(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    Cache(folder).fetch(KEY, ".o", Maker(b"old"))

    def read_only(call):
        def guarded(*args, **kwargs):
            if str(folder) in f"{args} {kwargs}":
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return call(*args, **kwargs)

        return guarded

    for name in ("mkdir", "open", "utime"):  # as a read-only mount refuses them, to root too
        monkeypatch.setattr(os, name, read_only(getattr(os, name)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Cache(folder).fetch(KEY, ".o", Maker()).read_bytes() == b"old"
    with pytest.warns(CacheWarning, match="Read-only file system"):
        new = Cache(folder).fetch("ef" + KEY[2:], ".o", Maker(b"new"))
    assert new.read_bytes() == b"new"


def test_trimming_passes_over_a_folder_that_may_not_be_looked_into(tmp_path, monkeypatch):
    looked = []

    def forbidden(self, pattern):
        looked.append(self)
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "glob", forbidden)  # root may look into any
    entries = Cache(tmp_path, limit=0)
    entries.fetch(KEY, ".o", Maker())
    entries.trim()
    assert looked == [tmp_path]


@pytest.mark.parametrize("made", [0, 10, 11])
def test_the_files_of_a_cache_that_has_hardly_grown_are_not_looked_at(tmp_path, monkeypatch, made):
    entries = Cache(tmp_path, limit=10 * caches.LOOKS)
    path = entries.fetch(KEY, ".o", Maker())
    entries.trim()
    looked = []
    monkeypatch.setattr(Path, "glob", lambda self, pattern: looked.append(self) or [])
    assert entries.fetch(KEY, ".o", Maker()) == path
    if made:
        entries.fetch(KEY, ".s", Maker(bytes(made)))
    entries.trim()
    assert looked == ([tmp_path] if made > 10 else [])


def test_nowhere_to_write_is_one_clear_error(tmp_path):
    with (
        pytest.warns(CacheWarning),
        pytest.raises(ToolchainError, match=r"expected a folder with free space .*No space left on device"),
    ):
        Cache(tmp_path).fetch(KEY, ".o", full_disk)


def _fetch(folder: Path, log: Path) -> None:
    def make(path: Path) -> None:
        with log.open("a") as file:
            file.write("made\n")
        time.sleep(0.1)
        path.write_bytes(b"x" * 100_000)

    assert Cache(folder).fetch(KEY, ".o", make).read_bytes() == b"x" * 100_000


def test_processes_that_want_the_same_entry_make_it_once(tmp_path):
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_fetch, args=(tmp_path / "cache", log)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert log.read_text() == "made\n"


def test_who_holds_a_lock_and_is_stopped_keeps_nobody(tmp_path, monkeypatch):
    # as `convoy compile` after Ctrl-Z: others waited for it without end
    monkeypatch.setattr(caches, "LOCK_SECONDS", 0.1)
    cache, other = Cache(tmp_path), "9" * 64
    cache.fetch(KEY, ".o", Maker(b"one"))
    with FileLock(tmp_path / "locks" / f"{other}.o"):
        assert cache.fetch(other, ".o", Maker(b"two")).read_bytes() == b"two"
    assert cache.fetch(other, ".o", Maker(b"none")).read_bytes() == b"two"


def test_who_makes_an_entry_keeps_nobody_from_another_that_begins_alike(tmp_path, monkeypatch):
    # all that began alike had one lock: a short unit waited half a minute for a long one of another network
    monkeypatch.setattr(caches, "LOCK_SECONDS", 1e6)
    cache, found = Cache(tmp_path), []

    def make(path: Path) -> None:
        other = threading.Thread(
            target=lambda: found.append(cache.fetch(KEY[:2] + "9" * 62, ".o", Maker(b"two"))), daemon=True
        )
        other.start()
        other.join(60)
        path.write_bytes(b"one")

    assert cache.fetch(KEY, ".o", make).read_bytes() == b"one"
    assert [path.read_bytes() for path in found] == [b"two"]


def test_locks_go_with_what_they_were_for(tmp_path):
    cache, locks = Cache(tmp_path, limit=0), tmp_path / "locks"
    cache.fetch(KEY, ".o", Maker())
    assert list(locks.iterdir()) == []
    old, young = locks / f"{KEY}.killed", locks / f"{KEY}.at_work"
    for lock, age in (old, caches.IN_USE_SECONDS + 1), (young, 0):
        lock.touch()
        os.utime(lock, (time.time() - age,) * 2)
    cache.trim()
    assert list(locks.iterdir()) == [young]


def test_environment_names_folder_and_size(tmp_path, monkeypatch):
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / "named"))
    monkeypatch.setenv("CONVOY_CACHE_SIZE", "3M")
    assert open_cache().folder == tmp_path / "named"
    assert open_cache().limit == 3 << 20
    assert open_cache(tmp_path / "asked").folder == tmp_path / "asked"
    monkeypatch.setenv("CONVOY_CACHE_SIZE", "plenty")
    with pytest.raises(ToolchainError, match="CONVOY_CACHE_SIZE: expected a size such as 500M or 4G"):
        open_cache()


def test_a_folder_in_the_home_of_nobody_is_one_clear_error(monkeypatch):
    monkeypatch.setenv("CONVOY_CACHE_DIR", "~nobody-of-this-name/cache")
    with pytest.raises(ToolchainError, match=r"cache: ~nobody-of-this-name/cache: .* without ~ in CONVOY"):
        open_cache()


def test_temporary_folder_comes_back(tmp_path):
    folder = caches.temporary_folder()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    assert caches.temporary_folder() == folder
    assert folder.is_dir()


def _use_temporary_folder(answer):
    folder = caches.temporary_folder()
    (folder / "file").write_text("of a child")
    answer.put((folder, folder.is_dir()))


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_temporary_folder_goes_with_a_child(start):
    own = caches.temporary_folder()
    context = multiprocessing.get_context(start)
    answer = context.Queue()
    child = context.Process(target=_use_temporary_folder, args=(answer,))
    child.start()
    folder, existed = answer.get(timeout=60)
    child.join()
    assert existed
    assert not folder.exists()
    assert own.is_dir()


def test_temporary_folder_goes_with_the_process():
    program = "from convoy.toolchain.cache import temporary_folder; print(temporary_folder())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert folder.name.startswith("convoy-")
    assert not folder.exists()


def test_threads_may_share_a_cache(tmp_path):
    entries = Cache(tmp_path)
    keys = [f"{i % 4:02x}{i % 16:062x}" for i in range(64)]  # each is asked for often, and at once
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda key: entries.fetch(key, ".o", Maker(key.encode())), keys))
    assert [path.read_bytes().decode() for path in paths] == keys


def test_making_an_entry_may_make_another_that_begins_alike(tmp_path):
    cache = Cache(tmp_path)
    header = "ab" + "1" * 62

    def compile_unit(path: Path) -> None:
        path.write_bytes(cache.fetch(header, ".h", Maker(b"header")).read_bytes() + b" and unit")

    assert cache.fetch(KEY, ".o", compile_unit).read_bytes() == b"header and unit"
