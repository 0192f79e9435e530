"""Pictures of reconstructions: an own PNG decoder reads back what was there, pixel by pixel."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedguard.bench.records.pictures import COLUMNS, IMAGES, LINE, SHADE, SIDE, grid, load, png, save
from fedguard.bench.records.store import RunFolder
from fedguard.contracts import Examples, Reconstruction
from fedguard.errors import ContractError

UNIT = (0.0, 1.0)


def decoded(content):
    """uint8 [H, W] or [H, W, 3] of an 8-bit PNG without filters; the checksum of each chunk is checked."""
    assert content[:8] == bytes([137, 80, 78, 71, 13, 10, 26, 10])
    chunks, at = [], 8
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        kind, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack(">I", content[at + 8 + length : at + 12 + length])
        assert zlib.crc32(kind + body) == checksum
        chunks.append((kind, body))
        at += 12 + length
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, color, compression, filtering, interlace = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, compression, filtering, interlace) == (8, 0, 0, 0)
    channels = {0: 1, 2: 3}[color]
    raw = zlib.decompress(chunks[1][1])
    stride = 1 + width * channels
    assert len(raw) == height * stride
    rows = [raw[row * stride : (row + 1) * stride] for row in range(height)]
    assert all(row[0] == 0 for row in rows)
    pixels = np.array([list(row[1:]) for row in rows], np.uint8)
    return pixels if channels == 1 else pixels.reshape(height, width, 3)


@given(st.integers(1, 9), st.integers(1, 9), st.booleans(), st.integers(0, 2**32))
def test_a_png_is_read_back_by_another_decoder(height, width, colors, seed):
    shape = (height, width, 3) if colors else (height, width)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(decoded(png(pixels)), pixels)


def test_a_png_of_one_black_pixel_is_the_known_file():
    """The parts as RFC 2083 lays them out, written by hand."""
    ihdr = bytes.fromhex("0000000d49484452000000010000000108000000003a7e9b55")
    content = png(np.zeros((1, 1), np.uint8))
    assert content[8:33] == ihdr
    assert content.endswith(bytes.fromhex("0000000049454e44ae426082"))


def spot(number, half, side, size=SIDE):
    """Top left corner of a true image (half 0) or of what was found (half 1)."""
    row, column = divmod(number, COLUMNS)
    return LINE + (2 * row + half) * (side * (size // side) + LINE), LINE + column * (side * (size // side) + LINE)


def test_each_pixel_is_a_square_in_its_place_and_the_rest_is_line():
    truth = torch.arange(3 * 64).view(3, 1, 8, 8) / 255
    found = 1 - truth
    pixels = grid(truth.numpy(), found.numpy(), UNIT)
    size, left = SIDE // 8, np.ones_like(pixels, dtype=bool)
    for half, rows in enumerate((truth, found)):
        for number in range(3):
            top, start = spot(number, half, 8)
            for i in range(8):
                for j in range(8):
                    square = np.s_[top + i * size : top + (i + 1) * size, start + j * size : start + (j + 1) * size]
                    assert (pixels[square] == round(255 * rows[number, 0, i, j].item())).all()
                    left[square] = False
    assert (pixels[left] == SHADE).all()
    assert pixels.shape == (2 * 64 + 3 * LINE, 3 * 64 + 4 * LINE)


def test_colors_stay_in_their_channels():
    truth = torch.zeros(1, 3, 2, 2)
    truth[0, 0] = 1.0
    found = torch.zeros(1, 3, 2, 2)
    found[0, 2] = 1.0
    pixels = grid(truth.numpy(), found.numpy(), UNIT)
    assert pixels[LINE + 1, LINE + 1].tolist() == [255, 0, 0]
    assert pixels[2 * LINE + SIDE + 1, LINE + 1].tolist() == [0, 0, 255]


def test_many_images_go_into_several_rows():
    truth = torch.linspace(0, 1, COLUMNS + 2).view(-1, 1, 1, 1).expand(-1, 1, 4, 4)
    pixels = grid(truth.numpy(), truth.numpy(), UNIT)
    assert pixels.shape == (4 * SIDE + 5 * LINE, COLUMNS * (SIDE + LINE) + LINE)
    for number in (0, COLUMNS - 1, COLUMNS, COLUMNS + 1):
        for half in (0, 1):
            assert pixels[spot(number, half, 4)] == round(255 * truth[number, 0, 0, 0].item())
    empty = spot(COLUMNS + 2, 0, 4)
    assert (pixels[empty[0] : empty[0] + SIDE, empty[1] :] == SHADE).all()


@pytest.mark.parametrize(
    ("value", "shade"), [(-2.0, 0), (-1.0, 0), (0.0, 85), (2.0, 255), (9.0, 255), (math.nan, 128), (math.inf, 128)]
)
def test_values_are_cut_to_the_range_and_what_is_not_finite_is_its_middle(value, shade):
    image = torch.full((1, 1, 2, 2), value)
    assert grid(image.numpy(), image.numpy(), (-1.0, 2.0))[LINE, LINE] == shade


def test_large_images_are_not_enlarged():
    image = torch.zeros(1, 1, 100, 70)
    assert grid(image.numpy(), image.numpy(), UNIT).shape == (200 + 3 * LINE, 70 + 2 * LINE)


@pytest.mark.parametrize("shape", [(2, 13), (2, 2, 8, 8), (2, 8, 8)])
def test_what_is_no_image_is_not_drawn(shape):
    assert grid(np.zeros(shape), np.zeros(shape), UNIT) is None


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run")
    made.create()
    return made


def test_a_reconstruction_is_kept_in_the_order_of_the_truth(folder):
    truth = Examples(torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(3))
    claim = Reconstruction(truth.x[[2, 0]] + 0.01)
    written = save(folder, "abc", 3, "client-7", claim, truth, UNIT)
    artifacts = folder.path / "artifacts"
    assert written == [artifacts / "abc-seed-003-client-7.npz", artifacts / "abc-seed-003-client-7.png"]
    assert sorted(artifacts.iterdir()) == written  # and no temporary file
    x, found = load(written[0])
    assert np.array_equal(x, truth.x.numpy())
    assert np.array_equal(found[[0, 2]], truth.x[[0, 2]].numpy() + np.float32(0.01))
    assert (found[1] == 0.5).all()
    assert np.array_equal(decoded(written[1].read_bytes()), grid(truth.x.numpy(), found, UNIT))


def test_the_arrays_are_plain_npy_within_a_zip(folder):
    truth = Examples(torch.zeros(2, 13), torch.arange(2))
    (path,) = save(folder, "abc", 3, "x", Reconstruction(truth.x), truth, UNIT)  # vectors: arrays alone
    with zipfile.ZipFile(path) as archive:
        for name in ("truth.npy", "found.npy"):
            content = archive.read(name)
            assert content.startswith(b"\x93NUMPY")
            assert b"'descr': '<f4'" in content[:128]


def test_a_large_claim_is_matched_whole_and_kept_in_part(folder):
    truth = Examples(
        torch.rand(IMAGES + 6, 1, 2, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(IMAGES + 6)
    )
    save(folder, "abc", 3, "x", Reconstruction(truth.x.flip(0)), truth, UNIT)
    x, found = load(folder.path / "artifacts" / "abc-seed-003-x.npz")
    assert len(x) == IMAGES
    assert np.array_equal(x, found)


def test_a_claim_of_another_shape_is_not_drawn(folder):
    truth = Examples(torch.zeros(2, 1, 8, 8), torch.arange(2))
    with pytest.raises(ContractError, match="claimed inputs"):
        save(folder, "abc", 3, "x", Reconstruction(torch.zeros(2, 64)), truth, UNIT)
    assert not list((folder.path / "artifacts").iterdir())
