"""The compile cache: small files under content hashes, in the user's cache folder.

An entry is two files, ``<key>.<suffix>`` and ``<key>.<suffix>.sum``, the SHA-256 of the first.
Both appear by renaming, so a reader sees a whole entry or none, and an entry whose bytes do not
fit its sum (a crash, a full disk, a stray edit) is rebuilt as if it were not there.  Locks only
keep two processes from doing the same work; correctness does not hang on them.

Where the folder cannot be written, entries go to a temporary folder of this process instead, with
one warning; only where that fails too is there an error.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from multiprocessing.util import Finalize
from pathlib import Path

import platformdirs
from filelock import FileLock

from convoy.errors import ToolchainError

DEFAULT_SIZE = 4 << 30
"""Bytes the cache may take; ``CONVOY_CACHE_SIZE`` overrides it."""
IN_USE_SECONDS = 600.0
"""An entry used within this time is not evicted: somebody may be about to link it."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class CacheWarning(UserWarning):
    """The cache folder cannot be used; a temporary folder takes its place."""


class Cache:
    """Entries by key, made on demand.

    Parameters
    ----------
    folder : where entries live; made if missing
    limit : bytes all entries together may take before the least recently used ones go
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_SIZE) -> None:
        self.folder = folder
        self.limit = limit
        self._grown = False
        self._warned = False

    def fetch(self, key: str, suffix: str, make: Callable[[Path], None]) -> Path:
        """The entry of ``key``, made by ``make`` if it is not there or damaged.

        Parameters
        ----------
        key : hexadecimal content hash, at least 8 digits
        suffix : of the file, e.g. ``.o``
        make : writes the entry to the path it is given; an ``OSError`` from it means that the
            folder cannot be written.  It may fetch entries of other suffixes itself
        Returns
        -------
        A file that stays for at least ``IN_USE_SECONDS``; not to be changed
        Raises
        ------
        ToolchainError  if neither the cache nor a temporary folder can be written
        """
        found = self._read(self.folder, key, suffix)
        if found is not None:
            return found
        try:
            return self._build(self.folder, key, suffix, make)
        except OSError as problem:
            self._warn(problem)
        fallback = temporary_folder() / "cache"
        found = self._read(fallback, key, suffix)
        if found is not None:
            return found
        try:
            return self._build(fallback, key, suffix, make)
        except OSError as problem:
            raise unwritable(fallback, problem) from problem

    def find(self, key: str, suffix: str) -> Path | None:
        """The entry of ``key`` if it is there and whole."""
        return self._read(self.folder, key, suffix)

    def trim(self) -> None:
        """Remove the least recently used entries until the rest fit ``limit`` bytes.

        Only if an entry was made since the last time: to look at ten thousand files takes 0.3 s.
        """
        if not self._grown:
            return
        self._grown = False
        entries = []
        with suppress(PermissionError):  # a folder of somebody else's
            for path in self.folder.glob("??/*"):
                try:
                    status = path.stat()
                except OSError:
                    continue  # gone meanwhile, by another process
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        newest_to_remove = time.time() - IN_USE_SECONDS
        for used, size, path in sorted(entries):
            if total <= self.limit or used > newest_to_remove:
                return
            try:
                path.unlink()
            except OSError:
                continue
            total -= size

    def _read(self, folder: Path, key: str, suffix: str) -> Path | None:
        path = _place(folder, key, suffix)
        try:
            expected = _sum_file(path).read_text()
            if _checksum(path) != expected:
                return None
        except (OSError, UnicodeDecodeError):
            return None
        for file in (path, _sum_file(path)):
            with suppress(OSError):  # a read-only cache serves; it is just not told what was used
                os.utime(file)
        return path

    def _build(self, folder: Path, key: str, suffix: str, make: Callable[[Path], None]) -> Path:
        path = _place(folder, key, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        # keys share 256 locks a suffix; the suffix keeps a unit from waiting for itself when the header it
        # needs falls on the same two digits
        with _locked(folder / "locks" / f"{suffix[1:]}-{key[:2]}"):
            found = self._read(folder, key, suffix)  # another process may have been first
            if found is not None:
                return found
            with _replacing(path) as unfinished:
                make(unfinished)
                checksum = _checksum(unfinished)
            with _replacing(_sum_file(path)) as unfinished:
                unfinished.write_text(checksum)
        self._grown = True
        return path

    def _warn(self, problem: OSError) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"cache: {self.folder}: expected a writable folder, got {problem.strerror or problem}; "
            "compiling into a temporary folder, so nothing is kept for the next time: free space there, or "
            "name another folder in CONVOY_CACHE_DIR",
            CacheWarning,
            stacklevel=4,
        )


def open_cache(folder: Path | None = None) -> Cache:
    """The cache in ``folder``; None: in ``CONVOY_CACHE_DIR``, else in the user's cache folder.

    Raises
    ------
    ToolchainError  if ``CONVOY_CACHE_SIZE`` is no size, or the folder is in the home of nobody
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


def temporary_folder() -> Path:
    """A folder of this process, removed when it ends.

    Raises
    ------
    ToolchainError  if no temporary folder can be written
    """
    folder = _temporary_folder(os.getpid())
    try:
        folder.mkdir(mode=0o700, exist_ok=True)  # cleaners of /tmp remove it under a long-lived process
    except OSError as problem:
        raise unwritable(folder, problem) from problem
    return folder


@lru_cache(maxsize=1)
def _temporary_folder(_: int) -> Path:
    """The folder of the process of this number."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="convoy-"))
    except OSError as problem:
        raise unwritable(Path(os.environ.get("TMPDIR", "/tmp")), problem) from problem
    # not by atexit, which children of multiprocessing end without; one forked otherwise leaves it alone
    Finalize(None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=0)
    return folder


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for the files of one step.

    Raises
    ------
    ToolchainError  if something cannot be written within the block
    """
    try:
        with tempfile.TemporaryDirectory(dir=temporary_folder()) as name:
            yield Path(name)
    except OSError as problem:
        raise unwritable(temporary_folder(), problem) from problem


def unwritable(folder: Path, problem: OSError) -> ToolchainError:
    """The error of a compilation that found nowhere to write."""
    return ToolchainError(
        "compile",
        str(folder),
        f"expected a folder with free space to write into, got {problem.strerror or problem}",
        "free disk space, or point TMPDIR and CONVOY_CACHE_DIR to folders that have some",
    )


def _place(folder: Path, key: str, suffix: str) -> Path:
    return folder / key[:2] / (key + suffix)


def _sum_file(path: Path) -> Path:
    return path.with_name(path.name + ".sum")


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire()
    except NotImplementedError:  # a file system without locks: the work may be done twice
        yield
        return
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A new file beside ``path`` that takes its place when the block ends well."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
