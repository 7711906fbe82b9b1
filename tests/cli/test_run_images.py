"""Pictures as inputs: size, layout, channels, normalisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import typer

from convoy.cli.images import parse_channels, read_images
from convoy.deploy.description import Tensor
from convoy.errors import ModelError

Image = pytest.importorskip("PIL.Image", reason="pillow, of the extra 'image', is not installed")


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """Red on the left, blue on the right; 4 wide, 2 high."""
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[:, :2, 0], pixels[:, 2:, 2] = 255, 255
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def test_channels_first_and_normalised(picture: Path) -> None:
    tensor = Tensor("x", ("n", 3, 2, 4), "float32")
    found = read_images([picture, picture], tensor, (0.5, 0, 0.25), (0.5, 1, 0.25))
    assert (found.shape, found.dtype, found.flags.c_contiguous) == ((2, 3, 2, 4), np.float32, True)
    np.testing.assert_allclose(found[1, :, 0, 0], [1, 0, -1])
    np.testing.assert_allclose(found[1, :, 1, 3], [-1, 0, 3])


def test_channels_last_whole_numbers_and_grey(picture: Path) -> None:
    (pixels,) = read_images([picture], Tensor("x", (1, 4, 8, 3), "uint8"), (0.5,), (0.5,))
    assert pixels.shape == (4, 8, 3)
    assert pixels[0, 0].tolist() == [255, 0, 0]
    grey = read_images([picture], Tensor("x", (1, 1, 2, 4), "float32"), (0,), (1,))
    np.testing.assert_allclose(grey[0, 0, 0], np.array([76, 76, 29, 29]) / 255, atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 5, 4, 4), (1, "c", 4, 4), (3, 4), None])
def test_other_inputs_take_no_pictures(shape: tuple[int | str, ...] | None, picture: Path) -> None:
    with pytest.raises(ModelError, match="expected an input of one or three channels"):
        read_images([picture], Tensor("x", shape, "float32"), (0,), (1,))


def test_what_is_no_picture_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("text")
    for name in ("text.png", "none.png"):
        with pytest.raises(ModelError, match=rf"{name}: expected a picture, got [^\[]*$"):
            read_images([tmp_path / name], Tensor("x", (1, 3, 2, 4), "float32"), (0,), (1,))


def test_numbers_of_channels() -> None:
    assert parse_channels("0.485,0.456,0.406", "--mean") == (0.485, 0.456, 0.406)
    assert parse_channels("1", "--std") == (1,)
    wrong = (
        ("1,2", "--mean"),
        ("red", "--mean"),
        ("0", "--std"),
        ("", "--mean"),
        ("nan", "--mean"),
        ("1e400", "--std"),
    )
    for text, option in wrong:
        with pytest.raises(typer.BadParameter, match=f"expected {option} as a number or three"):
            parse_channels(text, option)


def test_open_sizes_are_the_pictures_own(picture: Path, tmp_path: Path) -> None:
    tensor = Tensor("x", ("n", 3, "h", 8), "float32")
    assert read_images([picture], tensor, (0,), (1,)).shape == (1, 3, 2, 8)
    Image.open(picture).resize((4, 3)).save(tmp_path / "higher.png")
    with pytest.raises(
        ModelError, match=r"of one size, which x leaves open, got 8 x 2 and 8 x 3; .* --shape x="
    ):
        read_images([picture, tmp_path / "higher.png"], tensor, (0,), (1,))


def test_sixteen_bits_are_not_cut_off_and_thirty_two_are_refused(tmp_path: Path) -> None:
    values = np.array([[0, 257 * 100], [257 * 200, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    (found,) = read_images([tmp_path / "deep.png"], Tensor("x", (1, 2, 2, 3), "uint8"), (0,), (1,))
    assert found[..., 2].tolist() == [[0, 100], [200, 255]]
    for kind in (np.float32, np.int32):
        Image.fromarray(values.astype(kind)).save(tmp_path / "deeper.tiff")
        with pytest.raises(ModelError, match="got one of 32 bits a pixel"):
            read_images([tmp_path / "deeper.tiff"], Tensor("x", (1, 1, 2, 2), "float32"), (0,), (1,))


def test_a_picture_is_turned_as_it_is_to_be_seen(picture: Path, tmp_path: Path) -> None:
    image = Image.open(picture)
    marks = image.getexif()
    marks[0x0112] = 6  # the camera was turned: up is where the picture's left is
    image.save(tmp_path / "turned.png", exif=marks)
    (seen,) = read_images([tmp_path / "turned.png"], Tensor("x", (1, "h", "w", 3), "uint8"), (0,), (1,))
    assert seen.shape == (4, 2, 3)
    assert seen[:2].tolist() == [[[255, 0, 0]] * 2] * 2
