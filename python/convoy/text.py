"""Text from outside, made fit for the place it goes to: one function for each place.

The names in a model, the words of another program, a file's name: nobody has looked at them, and each
place has characters that do something there.  So each function keeps the characters that it knows to do
nothing, and writes others in another way.  Nothing else writes such text to such a place, which
``tests/layering/test_text_rules.py`` holds.

| place | function |
|---|---|
| a terminal, a log, an exception | ``line``, ``lines`` |
| a comment, a string, a name in C | ``c_comment``, ``c_string``, ``c_name`` |
| a file's name | ``file_name`` |
| JSON, Markdown, HTML, the text of a picture | ``to_json``, ``markdown``, ``html_rows``, ``caption`` |
| a page of HTML, for the script in it | ``page_json`` |
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from hashlib import blake2b
from math import isfinite
from typing import Any

_LONGEST = 4000
"""Characters of a line that is shown, if nothing else is asked."""
_LONGEST_FILE_NAME = 200
"""Characters; file systems take 255 bytes, and suffixes follow."""

_NOT_IN_COMMENTS = re.compile(r"[^A-Za-z0-9 _.,:;+\-=*/()\[\]<>%&|!~@]|\*(?=/)|/(?=\*)")
"""No ``\\`` and no ``?``, by which lines are joined before there are comments; no star beside a slash."""
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BY_CONTENT = re.compile(r"convoy_[0-9a-f]{16}")
"""What regions are named that Convoy cuts out."""
_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_.\-]")
_IN_MARKDOWN = re.compile(r"[\\`*_\[\]<>|~&#$!]")
"""What means something within a line of Markdown, tables, formulas and HTML in it included."""


def line(text: object, longest: int = _LONGEST) -> str:
    """One line for a terminal, a log or an exception; of one that is longer its two ends.

    Letters, digits, marks, symbols and the blank of any language stay; all else is written as Python
    writes it in a string: line ends, escape sequences, what turns the direction of writing.
    """
    return _cut(_visible(_cut(str(text), longest)), longest)


def _cut(text: str, longest: int) -> str:
    half = (longest - 3) // 2
    return text if len(text) <= longest else f"{text[:half]} … {text[-half:]}"


def lines(text: str) -> str:
    """Several lines of a program's, not of a model's: each as ``line`` has it, however long."""
    return "\n".join(map(_visible, text.split("\n")))


def c_comment(text: str) -> str:
    """What may stand in a C comment, blanks around it: a line of ASCII that neither ends nor begins one."""
    return _NOT_IN_COMMENTS.sub("_", text)


def c_string(text: str) -> str:
    """A string literal of C, and of the assembler; what is not plain ASCII becomes octal UTF-8."""
    try:
        data = text.encode(errors="surrogateescape")  # names of files that are no UTF-8 are so in Python
    except UnicodeEncodeError:
        data = text.encode(errors="backslashreplace")
    quoted = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in data
    )
    return f'"{quoted}"'


def c_name(text: str) -> str:
    """``text``, which is a name in C.

    Raises
    ------
    ValueError
        If it is not.
    """
    if not _C_NAME.fullmatch(text):
        raise ValueError(f"expected letters, digits and underscores, got {line(text)!r}")
    return text


def region_name(name: str) -> str:
    """The C function of a region that TVM calls ``name``: that if Convoy cut it out, else of its hash.

    A function that a user marked is called as the user likes: a region ``mmap`` would be the C library's
    for all that is linked with it, and one ``layer_weights`` the weights of another named ``layer``.
    """
    if _BY_CONTENT.fullmatch(name):
        return name
    return f"convoy_{blake2b(name.encode(), digest_size=8).hexdigest()}"


def file_name(text: str) -> str:
    """A file's name, without a folder: ASCII letters, digits, ``_``, ``-`` and ``.``."""
    name = _NOT_IN_FILE_NAMES.sub("_", text)
    if name[:1] in ("", ".", "-"):  # hidden, this folder or the one above; an option
        name = f"_{name}"
    return name if len(name) <= _LONGEST_FILE_NAME else f"{name[:100]}_{name[-99:]}"


def to_json(data: Any, indent: int | None = None) -> str:
    """``data`` as JSON in ASCII that can be printed; ``str`` of what JSON does not have."""
    return json.dumps(data, indent=indent, default=str).replace("\x7f", "\\u007f")


def page_json(data: Any) -> str:
    """``data`` as JSON within a page, for its script: nothing in it ends the element or means HTML.

    Its texts are one ``line`` each; but what is called ``source`` is a program's and keeps its lines.
    """
    written = to_json(_in_lines(data))
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _in_lines(data: Any, name: str = "") -> Any:
    if isinstance(data, dict):
        return {line(key): _in_lines(value, key) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_in_lines(value, name) for value in data]
    if isinstance(data, float) and not isfinite(data):
        return None  # JSON has no such number
    if isinstance(data, str):
        return lines(data) if name == "source" else line(data)
    return data


def markdown(text: str) -> str:
    """Plain text in Markdown, in one line."""
    return _IN_MARKDOWN.sub(lambda found: f"\\{found[0]}", line(text))


def markdown_code(text: str) -> str:
    """``text`` as code in Markdown, in one line."""
    return f"`{line(text).replace('`', chr(39))}`"


def caption(text: str) -> str:
    """The text of a picture, in one line: what XML takes, and without formulas."""
    return line(text).replace("$", "\\$")


def html_rows(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A table of HTML; nothing without rows."""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{_cells('th', head)}</tr>{body}</table>" if body else ""


def _cells(tag: str, row: Iterable[object]) -> str:
    return "".join(f"<{tag}>{html.escape(line(cell))}</{tag}>" for cell in row)


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
