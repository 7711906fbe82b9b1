"""The compile cache: small files under content hashes, in the user's cache folder.

An entry is two files, ``<key>.<suffix>`` and ``<key>.<suffix>.sum``, the SHA-256 of the first.
Both appear by renaming, so a reader sees a whole entry or none, and an entry whose bytes do not
fit its sum (a crash, a full disk, a stray edit) is rebuilt as if it were not there.  Locks only
keep two processes from doing the same work; correctness does not hang on them.  Each entry has a lock of
its own, so that nobody waits for what he does not want; its file goes with it.

Where the folder cannot be written, or another user can have written there (``trust.py``), entries go to
a temporary folder of this process instead, with one warning; only where that fails too is there an error.
An entry that another user can have written is never used, but made again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from convoy.errors import ToolchainError
from convoy.text import line
from convoy.toolchain.temporary import is_full, temporary_folder, unwritable
from convoy.toolchain.trust import (
    UntrustedError,
    check_folder,
    check_own_folder,
    make_folder,
    make_own,
    read_own,
)

DEFAULT_SIZE = 4 << 30
"""Bytes the cache may take; ``CONVOY_CACHE_SIZE`` overrides it."""
LOCK_SECONDS = 30.0
"""Waited for a process that makes the same entry: it may be stopped, as by Ctrl-Z."""
LOOKS = 64
"""How often the sizes of all entries are read while a process fills a cache."""
IN_USE_SECONDS = 600.0
"""An entry used within this time is not evicted: somebody may be about to link it."""

_Check = Callable[[Path], Path]
"""``trust.check_folder``; ``check_own_folder`` for what is in this process's temporary folder."""
_ENTRY = re.compile(r"([0-9a-f]{2})/\.?\1[0-9a-f]{6,}\.")
"""How folder and file of an entry begin, and of one that was not finished (``_replacing``)."""
_LOCK = re.compile(r"[0-9a-f]{8,}\.")
"""How the lock of one begins."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class CacheWarning(UserWarning):
    """The cache folder cannot be used, and a temporary folder takes its place; or an entry cannot."""


class Cache:
    """Entries by key, made on demand.

    Parameters
    ----------
    folder : Path
        Where entries live; made if missing.
    limit : int
        Bytes all entries together may take before the least recently used ones go.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_SIZE) -> None:
        self.folder = folder
        self.limit = limit
        self._room = 0
        self._warned = False
        self._suspects: set[Path] = set()
        """Files that were warned of."""

    def fetch(self, key: str, suffix: str, make: Callable[[Path], None]) -> Path:
        """The entry of ``key``, made by ``make`` if it is not there or damaged.

        Parameters
        ----------
        key : str
            Hexadecimal content hash, at least 8 digits.
        suffix : str
            How the file ends, e.g. ``.o``.
        make : Callable[[Path], None]
            Writes the entry to the path it is given; an ``OSError`` from it means that the folder cannot
            be written. It may fetch entries of other suffixes itself.

        Returns
        -------
        Path
            A file that stays for at least ``IN_USE_SECONDS``, unless somebody removes the cache; not to be
            changed.

        Raises
        ------
        ToolchainError
            If neither the cache nor a temporary folder can be written.
        """
        try:
            try:
                return self._fetch(self.folder, key, suffix, check_folder, make)
            except FileNotFoundError:  # somebody removed the cache meanwhile
                return self._fetch(self.folder, key, suffix, check_folder, make)
        except OSError as problem:
            self._warn(problem)
        fallback = temporary_folder() / "cache"
        try:
            return self._fetch(fallback, key, suffix, check_own_folder, make)
        except OSError as problem:
            raise unwritable(fallback, problem) from problem

    def find(self, key: str, suffix: str) -> Path | None:
        """The entry of ``key`` if it is there, whole, and nobody else's."""
        try:
            return self._read(check_folder(self.folder), key, suffix, check_folder)
        except OSError as problem:
            self._warn(problem)
            return None

    def trim(self) -> None:
        """Remove the least recently used entries until the rest fit ``limit`` bytes.

        To look at ten thousand files takes 0.3 s, so after the first time it is done only when the entries
        made since then take more than a ``LOOKS``-th of ``limit``.
        """
        if self._room >= 0:
            return
        self._room = self.limit // LOOKS
        newest_to_remove = time.time() - IN_USE_SECONDS
        _remove_locks(self.folder / "locks", newest_to_remove)
        entries = list(self._entries())
        total = sum(size for _, size, _ in entries)
        for used, size, path in sorted(entries):
            if total <= self.limit or used > newest_to_remove:
                return
            try:
                path.unlink()
            except OSError:
                continue
            total -= size

    def used(self) -> int:
        """Bytes that all entries take together."""
        return sum(size for _, size, _ in self._entries())

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """When each file of an entry was used, its bytes, and its place."""
        with suppress(PermissionError):  # a folder of somebody else's
            for path in self.folder.glob("??/*"):
                if not _ENTRY.match(f"{path.parent.name}/{path.name}"):
                    continue  # somebody's file: the folder was there before the cache
                try:
                    status = path.stat()
                except OSError:
                    continue  # gone meanwhile, by another process
                yield status.st_mtime, status.st_size, path

    def _fetch(
        self, folder: Path, key: str, suffix: str, check: _Check, make: Callable[[Path], None]
    ) -> Path:
        folder = check(folder)
        found = self._read(folder, key, suffix, check)
        return found if found is not None else self._build(folder, key, suffix, check, make)

    def _read(self, folder: Path, key: str, suffix: str, check: _Check) -> Path | None:
        """The entry in a folder that was checked.

        Raises
        ------
        UntrustedError
            If another user can have written in the folder of entries that begin alike.
        """
        path = check(folder / key[:2]) / (key + suffix)
        try:
            if _checksum(read_own(path)) != read_own(_sum_file(path)).decode():
                return None
        except UntrustedError as problem:
            self._warn_of_entry(problem)
            return None
        except (OSError, UnicodeDecodeError):
            return None
        for file in (path, _sum_file(path)):
            with suppress(OSError):  # a read-only cache serves; it is just not told what was used
                os.utime(file)
        return path

    def _build(
        self, folder: Path, key: str, suffix: str, check: _Check, make: Callable[[Path], None]
    ) -> Path:
        path = _make(folder, key[:2], check) / (key + suffix)
        with _locked(_make(folder, "locks", check) / (key + suffix)):
            found = self._read(folder, key, suffix, check)  # another process may have been first
            if found is not None:
                return found
            with _unless_removed(path.parent), _replacing(path) as unfinished:
                make(unfinished)
                made = _read_made(unfinished, suffix)
            with _replacing(_sum_file(path)) as unfinished:
                unfinished.write_text(_checksum(made), "utf-8")
        self._room -= len(made)
        return path

    def _warn(self, problem: OSError) -> None:
        if self._warned:
            return
        self._warned = True
        place, expected, remedy = self.folder, "a writable folder", _remedy(problem)
        if isinstance(problem, UntrustedError):
            place, expected = problem.place, "only folders that nobody else can write"
            remedy = f"remove {self.folder}, which may hold what others wrote, if it is this cache's alone"
        warnings.warn(
            line(
                f"cache: {place}: expected {expected}, got {problem.strerror or problem}; compiling into a "
                f"temporary folder, so nothing is kept for the next time: {remedy}, or name another folder "
                "in CONVOY_CACHE_DIR"
            ),
            CacheWarning,
            stacklevel=4,
        )

    def _warn_of_entry(self, problem: UntrustedError) -> None:
        if problem.place in self._suspects:
            return
        self._suspects.add(problem.place)
        warnings.warn(
            line(
                f"cache: {problem.place}: expected a file that nobody else can write, got "
                f"{problem.strerror}; it is not used, but made again: find out who put it there"
            ),
            CacheWarning,
            stacklevel=5,
        )


def _remedy(problem: OSError) -> str:
    if isinstance(problem, FileExistsError | NotADirectoryError):
        return "move away what stands in its place"
    return "free space there" if is_full(problem) else "make it writable"


def open_cache(folder: Path | None = None) -> Cache:
    """The cache in ``folder``; None: in ``CONVOY_CACHE_DIR``, else in the user's cache folder.

    Raises
    ------
    ToolchainError
        If ``CONVOY_CACHE_SIZE`` is no size, or the folder is in the home of nobody.
    """
    if folder is None:
        named = os.environ.get("CONVOY_CACHE_DIR")
        folder = Path(named) if named else Path(platformdirs.user_cache_dir("convoy"))
    try:
        folder = folder.expanduser()
    except RuntimeError as error:
        raise ToolchainError(
            "cache", str(folder), f"expected a folder, got {error}", "name it without ~ in CONVOY_CACHE_DIR"
        ) from error
    return _open(folder.absolute(), _size_limit())


@lru_cache(maxsize=8)
def _open(folder: Path, limit: int) -> Cache:
    return Cache(folder, limit)


def _size_limit() -> int:
    text = os.environ.get("CONVOY_CACHE_SIZE", "").strip().upper().removesuffix("B")
    if not text:
        return DEFAULT_SIZE
    number, unit = (text[:-1], text[-1]) if text[-1] in _UNITS else (text, "")
    if not number.isdecimal():
        raise ToolchainError(
            "cache",
            "CONVOY_CACHE_SIZE",
            f"expected a size such as 500M or 4G, got {os.environ['CONVOY_CACHE_SIZE']!r}",
            "correct it or unset it",
        )
    return int(number) * _UNITS[unit]


def _make(folder: Path, name: str, check: _Check) -> Path:
    """A folder in the cache, made where it is missing: somebody else may have been first."""
    make_folder(folder / name)
    check(folder)
    return check(folder / name)


def _read_made(path: Path, suffix: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as problem:
        remedy = "try again; if it happens again, report it"
        raise ToolchainError(
            "cache", f"an entry *{suffix}", "expected a file, got none made", remedy
        ) from problem


@contextmanager
def _unless_removed(folder: Path) -> Iterator[None]:
    """What a compiler says is an error of the folder's, if somebody removed that as it ran."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # there may be another of its name by then
    try:
        yield
    except ToolchainError as error:
        if os.fstat(place).st_nlink and folder.is_dir():
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder)) from error
    finally:
        os.close(place)


def _sum_file(path: Path) -> Path:
    return path.with_name(path.name + ".sum")


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except (NotImplementedError, Timeout):  # the first of a file system without locks: work is done twice
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):  # whoever has it open sees that it is gone, and makes it again
            path.unlink()
        lock.release()


def _remove_locks(folder: Path, before: float) -> None:
    """Those that processes left which were killed."""
    with suppress(OSError), os.scandir(folder) as locks:
        for lock in locks:
            with suppress(OSError):
                if _LOCK.match(lock.name) and lock.stat(follow_symlinks=False).st_mtime < before:
                    os.unlink(lock.path)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A new file beside ``path`` that takes its place when the block ends well."""
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
        make_own(unfinished)
        unfinished.replace(path)
    finally:
        if unfinished.is_dir() and not unfinished.is_symlink():  # some compiler's doing
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)
