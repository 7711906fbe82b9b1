"""Each function of ``convoy.text`` keeps what does nothing where the text goes, and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hostile import CLOSINGS, ELSEWHERE, NAMES, SCREEN

from convoy import text
from convoy.errors import ConvoyError, ToolchainError
from convoy.report.decision import Decision


def shown(names: tuple[str, ...]) -> list[str]:
    """Ids of tests: they, too, are printed."""
    return [f"{i} {text.file_name(name)[:30]}" for i, name in enumerate(names)]


@pytest.mark.parametrize("name", NAMES, ids=shown(NAMES))
def test_a_line_is_one_line_of_what_can_be_printed(name: str) -> None:
    made = text.line(name)
    assert made.isprintable()
    assert len(made) <= 4000
    assert text.line(made) == made
    error = ConvoyError(name, name, name, name)
    assert str(error).isprintable()
    assert len(error.node) <= 500
    assert str(Decision(name, "fold", name, name)).isprintable()


def test_a_line_keeps_the_words_of_all_languages() -> None:
    for same in ("conv2d /layer1/conv (3×3) [a] é 漢字 naïve \\ {}", "שלום", "हिन्दी", "🙂"):
        assert text.line(same) == same
    assert text.line("a\nb\x1b[1m\u202e\ud800") == r"a\nb\x1b[1m\u202e\ud800"


def test_a_line_that_is_cut_shows_both_ends_and_is_not_cut_again() -> None:
    for long in ("a" * 300 + "b" * 300, "\n" * 600, "\x1b" * 90):
        made = text.line(long, 100)
        assert len(made) <= 100
        assert text.line(made, 100) == made
        assert (made[0], made[-1]) == (text.line(long[0])[0], text.line(long[-1])[-1])
    assert text.line("a" * 100, 100) == "a" * 100


def test_the_words_of_another_program_keep_their_lines_and_survive_cpp() -> None:
    error = ToolchainError("compile", "unit", "expected C, got", "fix it", "\n\x1b[2Jone; a\nerror: two\n")
    assert str(error) == "compile: unit: expected C, got\n\\x1b[2Jone; a\nerror: two\n; fix it"
    again = ToolchainError(*ToolchainError.parse(str(error)))
    assert (str(again), again.remedy) == (str(error), "fix it")


def test_nothing_in_a_comment_is_seen_by_a_compiler(tmp_path: Path) -> None:
    # all of them in one unit, each between two marks: what is left after preprocessing is the marks
    unit = "".join(f"begin{i} /* {text.c_comment(name)} */ end{i}\n" for i, name in enumerate(NAMES))
    done = subprocess.run(
        ["gcc", "-std=c11", "-trigraphs", "-E", "-P", "-Wall", "-Werror", "-x", "c", "-"],
        input=unit, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [mark for i in range(len(NAMES)) for mark in (f"begin{i}", f"end{i}")]


def test_a_comment_keeps_what_ops_are_called() -> None:
    for same in (
        "conv2d [1, 3, 8, 8] * [4, 3, 3, 3] + bias -> [1, 4, 6, 6]",
        "/layer1/layer1.0/conv1/Conv",
    ):
        assert text.c_comment(same) == same


def test_strings_of_c_and_of_the_assembler_hold_what_was_written(tmp_path: Path) -> None:
    told = [name for name in (*CLOSINGS, *SCREEN, *ELSEWHERE, "\udcff") if "\0" not in name]
    rows = "".join(f"  {text.c_string(name)},\n" for name in told)
    unit = f"#include <stdio.h>\nconst char *all[] = {{\n{rows}}};\nint main(void) {{\n"
    unit += f'  for (int i = 0; i < {len(told)}; i++) printf("%s%c", all[i], 0);\n}}\n'
    program = tmp_path / "print"
    subprocess.run(["gcc", "-trigraphs", "-x", "c", "-", "-o", program], input=unit, text=True, check=True)
    printed = subprocess.run([program], capture_output=True, check=True).stdout.split(b"\0")[:-1]
    assert printed == [name.encode(errors="surrogateescape") for name in told]
    awkward = tmp_path / 'a "b" \\ \n # é'
    awkward.write_bytes(b"data")
    subprocess.run(
        ["gcc", "-x", "assembler", "-c", "-", "-o", tmp_path / "data.o"],
        input=f".data\n.incbin {text.c_string(str(awkward))}\n", text=True, check=True,
    )  # fmt: skip
    assert b"data" in (tmp_path / "data.o").read_bytes()


def test_a_name_in_c_is_one_or_an_error() -> None:
    assert text.c_name("convoy_12ab") == "convoy_12ab"
    for name in (*NAMES, "a b", "1a", "a-b", "a\n", ""):
        if name not in ("_", "int", "main", "x" * 5000):
            with pytest.raises(ValueError, match="expected letters"):
                text.c_name(name)


@pytest.mark.parametrize("name", NAMES, ids=shown(NAMES))
def test_a_files_name_stays_in_its_folder_and_is_no_option(name: str, tmp_path: Path) -> None:
    path = tmp_path / text.file_name(name)
    assert path.parent == tmp_path
    assert not path.name.startswith(("-", ".", "~"))
    path.write_text("")
    assert path.is_file()


def test_json_is_ascii_and_holds_the_names() -> None:
    made = text.to_json(NAMES)
    assert made.isascii()
    assert made.isprintable()
    assert json.loads(made) == list(NAMES)


def test_markdown_is_text_in_one_line_without_tags_links_and_cells() -> None:
    for name in NAMES:
        made = text.markdown(name)
        assert made.isprintable()
        bare = made.replace("\\\\", "").replace("\\", "\\\0")
        for sign in "<>|`[]&$":
            assert bare.count(sign) == bare.count(f"\\\0{sign}")
        assert text.markdown_code(name).count("`") == 2


def test_the_text_of_a_picture_is_xml_and_no_formula(tmp_path: Path) -> None:
    for name in NAMES:
        made = text.caption(name)
        ElementTree.fromstring(f"<a>{made.replace('&', '&amp;').replace('<', '&lt;')}</a>")
        assert made.count("$") == made.count(r"\$")
