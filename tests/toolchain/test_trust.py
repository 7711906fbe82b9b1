"""What another user can have written is never linked, loaded or believed."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from convoy import target
from convoy.toolchain import compiler, temporary, trust
from convoy.toolchain.cache import Cache, CacheWarning
from convoy.tune import store

KEY = "ab" + "0" * 62
ANOTHER = 12345
"""A user that is not this one."""


@pytest.fixture
def another() -> int:
    if os.geteuid() != 0:
        pytest.skip("giving a file to another user needs root")
    return ANOTHER


@pytest.fixture(params=[0o000, 0o002, 0o077], ids=lambda mask: f"umask {mask:03o}")
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def put(content: bytes, folder: Path, name: str = KEY + ".o") -> Path:
    """An entry with its sum, as a cache keeps it."""
    path = folder / name[:2] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.with_name(path.name + ".sum").write_text(hashlib.sha256(content).hexdigest())
    return path


def fetch(folder: Path) -> bytes:
    return Cache(folder).fetch(KEY, ".o", lambda path: path.write_bytes(b"made") and None).read_bytes()


def refused(folder: Path, match: str) -> None:
    """Nothing is taken from the folder, and one line says why and what to do."""
    entries = Cache(folder)
    with pytest.warns(CacheWarning, match=match) as caught:
        path = entries.fetch(KEY, ".o", lambda path: path.write_bytes(b"made") and None)
    assert entries.find(KEY, ".o") is None
    assert path.read_bytes() == b"made"
    assert not path.is_relative_to(folder)
    (warning,) = caught
    assert str(warning.message).isprintable()
    assert f"remove {folder}" in str(warning.message)
    assert "CONVOY_CACHE_DIR" in str(warning.message)
    path.unlink()


def trusted(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fetch(folder) == b"planted"


def test_folders_and_files_are_the_users_alone_whatever_the_umask(any_umask: None, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "cache"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert fetch(folder) == b"made"
    for path in (folder.parent.parent, *folder.parent.parent.rglob("*")):
        if path.parent.name != "locks":
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_objects_of_a_compiler_under_any_umask_are_found_again(
    any_umask: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GNU's assembler makes its output anew, for all to write where the umask allows it
    source = f"int f(void) {{ return {os.umask(0)}; }}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = compiler.compile_object(source, target.host(), folder=tmp_path / "cache")
        assert compiler.compile_object(source, target.host(), folder=tmp_path / "cache") == first
    assert first.stat().st_mode & 0o077 == 0


def test_a_folder_that_others_can_read_is_used_also_through_a_link(
    tmp_path: Path,
) -> None:
    put(b"planted", tmp_path / "cache")
    (tmp_path / "cache").chmod(0o755)
    trusted(tmp_path / "cache")
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    trusted(tmp_path / "link")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777, 0o720])
@pytest.mark.parametrize("place", ["", "ab"])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int, place: str) -> None:
    folder = tmp_path / "cache"
    put(b"planted", folder)
    (folder / place).chmod(mode)
    refused(folder, f"expected only folders that nobody else can write, got .* others can write.*{mode:o}")


@pytest.mark.parametrize("place", ["", "ab"])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, another: int, place: str) -> None:
    folder = tmp_path / "cache"
    put(b"planted", folder)
    os.chown(folder / place, another, another)
    refused(folder, f"got a folder of user {another}")


def test_whose_folder_it_is_is_asked_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the same for who is not root: this user's files, seen by somebody else
    put(b"planted", tmp_path / "cache")
    monkeypatch.setattr(trust.os, "geteuid", lambda: ANOTHER)
    with pytest.raises(trust.UntrustedError):
        trust.check_folder(tmp_path / "cache")
    with pytest.raises(trust.UntrustedError):
        trust.read_own(tmp_path / "cache" / "ab" / f"{KEY}.o")


def test_a_link_to_a_folder_of_another_user_is_refused(tmp_path: Path, another: int) -> None:
    put(b"planted", tmp_path / "theirs")
    os.chown(tmp_path / "theirs", another, another)
    (tmp_path / "cache").symlink_to(tmp_path / "theirs")
    refused(tmp_path / "cache", f"got a folder of user {another}")


@pytest.mark.parametrize("mode", [0o777, 0o773])
def test_a_folder_above_that_others_can_write_is_refused_unless_sticky(tmp_path: Path, mode: int) -> None:
    above = tmp_path / "above"
    put(b"planted", above / "cache")
    above.chmod(mode)
    refused(above / "cache", "a folder above it that others can write")
    above.chmod(0o1000 | mode)
    trusted(above / "cache")


def test_a_folder_above_of_another_user_is_refused(tmp_path: Path, another: int) -> None:
    above = tmp_path / "above"
    put(b"planted", above / "cache")
    os.chown(above, another, another)
    refused(above / "cache", f"a folder above it of user {another}")


def test_a_folder_above_may_be_writable_for_the_users_own_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as with a umask of 002, where each user has a group of his own
    above = tmp_path / "above"
    put(b"planted", above / "cache")
    above.chmod(0o775)
    user = trust.pwd.getpwuid(os.geteuid())

    def group(name: str, *members: str) -> None:
        made = trust.grp.struct_group((name, "x", above.stat().st_gid, list(members)))
        monkeypatch.setattr(trust.grp, "getgrgid", lambda number: made)

    group(user.pw_name)
    trusted(above / "cache")
    group("staff", "alice", "bob")
    refused(above / "cache", "a folder above it that others can write")
    group(user.pw_name, "alice")
    refused(above / "cache", "a folder above it that others can write")


def replace_by_link(path: Path) -> None:
    path.rename(path.with_suffix(".kept"))
    path.symlink_to(path.with_suffix(".kept"))


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("which", ["", ".sum"])
@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda path: path.chmod(0o666), "a file that others can write"),
        (lambda path: path.chmod(0o620), "a file that others can write"),
        (replace_by_link, "a symbolic link"),
        (replace_by_pipe, "no plain file"),
    ],
)
def test_an_entry_that_others_can_have_written_is_made_again(tmp_path: Path, which, spoil, found) -> None:
    path = put(b"planted", tmp_path / "cache")
    spoil(path.with_name(path.name + which))
    with pytest.warns(CacheWarning) as told:
        assert fetch(tmp_path / "cache") == b"made"
    (warning,) = told
    assert re.search(f"{path.name}{which}: expected .* got {found}.* made again", str(warning.message))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fetch(tmp_path / "cache") == b"made"


def test_an_entry_of_another_user_is_made_again(tmp_path: Path, another: int) -> None:
    path = put(b"planted", tmp_path / "cache")
    os.chown(path, another, another)
    with pytest.warns(CacheWarning, match=f"got a file of user {another}"):
        assert fetch(tmp_path / "cache") == b"made"


def test_an_entry_that_is_exchanged_while_it_is_opened_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(b"planted", tmp_path / "cache")
    other, opened = put(b"exchanged", tmp_path / "other"), Path.open

    def exchange(self: Path, *given, **named):
        if other.exists():
            other.replace(path)
        return opened(self, *given, **named)

    monkeypatch.setattr(Path, "open", exchange)
    with pytest.raises(trust.UntrustedError, match="exchanged"):
        trust.read_own(path)


def test_a_planted_object_is_not_linked(tmp_path: Path) -> None:
    folder, source = tmp_path / "cache", "int answer(void) { return 1; }"
    ours = compiler.compile_object(source, target.host(), folder=folder)
    theirs = compiler.compile_object("int answer(void) { return 2; }", target.host(), folder=folder)
    put(theirs.read_bytes(), folder, ours.name)
    folder.chmod(0o777)
    with pytest.warns(CacheWarning, match="others can write"):
        made = compiler.compile_object(source, target.host(), folder=folder)
    assert ctypes.CDLL(str(compiler.link_shared([made]))).answer() == 1


def test_planted_times_are_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    store.keep(KEY, folder, {"direct": 1.0})
    assert store.find(KEY, folder) == {"direct": 1.0}
    folder.chmod(0o777)
    store.open_cache(folder)._warned = False
    with pytest.warns(CacheWarning, match="others can write"):
        assert store.find(KEY, folder) is None


def test_the_temporary_folder_is_not_taken_over(another: int) -> None:
    folder = temporary.temporary_folder()
    shutil.rmtree(folder)  # as a cleaner of /tmp does
    folder.mkdir()
    os.chown(folder, another, another)
    try:
        with pytest.raises(compiler.ToolchainError, match=f"a folder of user {another}"):
            temporary.temporary_folder()
    finally:
        folder.rmdir()
    assert temporary.temporary_folder() == folder
