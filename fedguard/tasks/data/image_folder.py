"""Images in one folder per class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError, MissingExtra
from fedguard.tasks.data.assembly import Part, assembled, found

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")


@dataclass(frozen=True, kw_only=True)
class ImageFolder(Data):
    """``folder/CLASS/*.png``, or ``folder/train/CLASS/*.png`` with ``folder/test/CLASS/*.png``; classes in the order of their names.

    Args:
        folder: that holds the classes.
        size: height and width to which each image is resized.
        grey: one channel instead of three.
        test: the share of the images kept for testing, if there is no folder ``test``.
    """

    name = "image_folder"
    source = "the layout of torchvision's ImageFolder"

    folder: str
    size: tuple[int, int] = (32, 32)
    grey: bool = False
    test: float = 0.2

    def load(self) -> Dataset:
        folder = found(self.folder, "folder")
        split = (folder / "train").is_dir() and (folder / "test").is_dir()
        train = self._read(folder / "train" if split else folder)
        test = self._read(folder / "test") if split else None
        return assembled(str(folder), train, test, share=self.test, value_range=(0.0, 1.0))

    def _read(self, folder: Path) -> Part:
        files = [
            (file, one.name)
            for one in sorted(folder.iterdir()) if one.is_dir()
            for file in sorted(one.iterdir()) if file.suffix.lower() in ENDINGS
        ]  # fmt: skip
        if not files:
            raise ConfigError(f"{folder}: expected folders of images, one for each class; got none.")
        return Part(np.stack([self._pixels(file) for file, _ in files]), np.array([name for _, name in files]))

    def _pixels(self, file: Path) -> NDArray[np.float32]:
        try:
            from PIL import Image, UnidentifiedImageError
        except ImportError:
            raise MissingExtra("image_folder", "pillow", "data") from None
        try:
            with Image.open(file) as image:
                resized = image.convert("L" if self.grey else "RGB").resize((self.size[1], self.size[0]))
        except (UnidentifiedImageError, OSError) as error:
            raise ConfigError(f"{file}: cannot be read as an image: {error}.") from None
        values = np.asarray(resized, np.float32) / 255
        return values[None] if self.grey else values.transpose(2, 0, 1)
