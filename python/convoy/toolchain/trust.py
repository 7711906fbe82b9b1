"""Which folders and files only this user can have written: what Convoy links, loads or believes later.

An object in the cache runs in the user's processes.  So a folder of it is this user's, and so is each file;
nobody else may write them, nor the folders above them, in which they could be exchanged.  Above, folders
of root will do, and where all may write (``/tmp``) those in which nobody can rename what is another's.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT, _UNMAPPED = 0, 65534
"""Who owns the system's folders: in a container without root's number, they are shown as nobody's."""


class UntrustedError(OSError):
    """Another user can have written something that was about to be used.

    ``place`` says where, ``strerror`` what was found there.
    """

    def __init__(self, place: Path, found: str) -> None:
        super().__init__(0, found)
        self.place = place


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone, whatever the umask.

    Raises
    ------
    OSError
        If it cannot be made, or there is something else.
    """
    if not folder.parent.is_dir():
        make_folder(folder.parent)
    try:
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise


def make_own(file: Path) -> None:
    """Leave a file to this user alone, whatever the umask was when a compiler made it."""
    file.chmod(file.stat().st_mode & 0o700 | 0o600)


def check_folder(folder: Path) -> Path:
    """``folder`` by its real name, without symbolic links; there may be none yet.

    Raises
    ------
    UntrustedError
        If another user can have written there, or can put another folder in its place.
    OSError
        If it cannot be looked at.
    """
    real = Path(os.path.realpath(folder))
    for above in reversed(real.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            status = above.lstat()
            if status.st_uid not in (os.geteuid(), _ROOT, _UNMAPPED):
                raise UntrustedError(above, f"a folder above it of {_user(status.st_uid)}")
            sticky = status.st_mode & stat.S_ISVTX
            if status.st_mode & _OTHERS_WRITE and not sticky and not _is_private(status):
                raise UntrustedError(above, "a folder above it that others can write")
    return check_own_folder(real)


def check_own_folder(folder: Path) -> Path:
    """``folder``, in which nobody else can have written, wherever it lies; there may be none yet.

    Raises
    ------
    UntrustedError, OSError
        As ``check_folder``.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            raise FileExistsError(errno.EEXIST, "something there that is no folder", str(folder))
        _check(folder, status, "a folder")
    return folder


def read_own(path: Path) -> bytes:
    """What is in a file of a trusted folder.

    Raises
    ------
    UntrustedError
        If another user can have written it, or it is no plain file.
    OSError
        If it cannot be read.
    """
    before = path.lstat()
    if not stat.S_ISREG(before.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(before.st_mode) else "no plain file"
        raise UntrustedError(path, kind)
    with path.open("rb") as file:
        status = os.fstat(file.fileno())  # of what was opened, not of what has the name by now
        if (status.st_dev, status.st_ino) != (before.st_dev, before.st_ino):
            raise UntrustedError(path, "a file that was exchanged while it was opened")
        _check(path, status, "a file")
        return file.read()


def _check(path: Path, status: os.stat_result, kind: str) -> None:
    if status.st_uid != os.geteuid():
        raise UntrustedError(path, f"{kind} of {_user(status.st_uid)}")
    if status.st_mode & _OTHERS_WRITE:
        raise UntrustedError(path, f"{kind} that others can write (mode {stat.S_IMODE(status.st_mode):o})")


def _is_private(status: os.stat_result) -> bool:
    """Only its group may write, and that is this user's own, as where the umask is 002."""
    if status.st_mode & stat.S_IWOTH:
        return False
    try:
        group, user = grp.getgrgid(status.st_gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
