"""Images in one folder per class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError, MissingExtra, require
from fedguard.tasks.data.assembly import Part, assembled, check_test, found

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")


@dataclass(frozen=True, kw_only=True)
class ImageFolder(Data):
    """``folder/CLASS/*.png``, or ``folder/train/CLASS/*.png`` with ``folder/test/CLASS/*.png``.

    Classes are in the order of their names. Other files, and what starts with a dot, are left alone.

    Args:
        folder: that holds the classes.
        size: height and width to which each image is resized.
        grey: one channel instead of three.
        test: the share of the images kept for testing, if there is no folder ``test``.
    """

    name = "image_folder"
    source = "the layout of torchvision's ImageFolder"
    outside = True

    folder: str
    size: tuple[int, int] = (32, 32)
    grey: bool = False
    test: float = 0.2

    def __post_init__(self) -> None:
        require(min(self.size) >= 1, f"image_folder: size: expected at least 1 x 1; got {list(self.size)}.")
        check_test(self.name, self.test)

    def load(self) -> Dataset:
        folder = found(self.folder, "folder")
        split = (folder / "train").is_dir() and (folder / "test").is_dir()
        train = self._read(folder / "train" if split else folder)
        test = self._read(folder / "test") if split else None
        return assembled(str(folder), train, test, share=self.test, value_range=(0.0, 1.0))

    def _read(self, folder: Path) -> Part:
        classes = sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))
        if not classes:
            raise ConfigError(f"{folder}: expected folders of images, one for each class; got none.")
        images, names = [], []
        for one in classes:
            files = sorted(file for file in one.iterdir() if file.suffix.lower() in ENDINGS)
            files = [file for file in files if not file.name.startswith(".")]
            if not files:
                raise ConfigError(f"{one}: expected images ({', '.join(ENDINGS)}); got none.")
            images += [self._pixels(file) for file in files]
            names += [one.name] * len(files)
        return Part(np.stack(images), np.array(names))

    def _pixels(self, file: Path) -> NDArray[Any]:
        try:
            from PIL import Image
        except ImportError:
            raise MissingExtra("image_folder", "pillow", "data") from None
        try:
            with Image.open(file) as image:
                resized = image.convert("L" if self.grey else "RGB").resize((self.size[1], self.size[0]))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise ConfigError(f"{file}: cannot be read as an image: {error}.") from None
        values = np.asarray(resized, np.float32) / 255
        return values[None] if self.grey else values.transpose(2, 0, 1)
