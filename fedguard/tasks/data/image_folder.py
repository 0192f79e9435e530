"""Images in one folder per class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, Preparation, ProperFraction
from fedguard.errors import ConfigError, MissingExtra, oneline
from fedguard.tasks.data.assembly import RawExamples, assemble_dataset, check_classes
from fedguard.tasks.data.files import regular, require_path, why_not

#: Pixels of a side
Side = Annotated[int, Ge(1), Le(16_384)]
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")


@dataclass(frozen=True, kw_only=True)
class ImageFolder(Data):
    """``folder/CLASS/*.png``, or ``folder/train/CLASS/*.png`` with ``folder/test/CLASS/*.png``.

    Classes are the folders, in the order of their names, unless they are given. Other files, and what starts with a dot, are
    left alone. Pixels are taken as they are stored, of 8 bits or 16: transparency and a rotation noted in the file (EXIF) are
    not applied.

    Args:
        folder: that holds the classes.
        size: height and width to which each image is resized.
        gray: one channel instead of three.
        classes: their names; without them, as many as there are folders. One of them may have no images.
        test: the share of the images kept for testing, if there is no folder ``test``.
    """

    name = "image_folder"
    source = "the layout of torchvision's ImageFolder"
    outside = True

    folder: str
    size: tuple[Side, Side] = (32, 32)
    gray: bool = False
    classes: tuple[str, ...] | None = None
    test: ProperFraction = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.name, self.classes, numbered=False)

    @property
    def preparation(self) -> Preparation:
        if self.classes is None:
            return Preparation("records", "the classes", "Give classes, by name.")
        return Preparation("given", f"pixels of 8 or 16 bits, {len(self.classes)} classes")

    def load(self) -> Dataset:
        folder = require_path(self.folder, "folder")
        split = (folder / "train").is_dir() and (folder / "test").is_dir()
        train = self._read(folder / "train" if split else folder)
        test = self._read(folder / "test") if split else None
        return assemble_dataset(
            str(folder),
            train,
            test,
            share=self.test,
            value_range=(0.0, 1.0),
            classes=self.classes,
            shape=train.x.shape[1:],
        )

    def _read(self, folder: Path) -> RawExamples:
        given = self.classes is not None
        files = [
            (one.name, file) for one in _entries(folder) if one.is_dir() for file in _images(one, may_be_empty=given)
        ]
        if not files:
            raise ConfigError(f"{folder}: expected folders of images, one for each class; got none.")
        x = np.empty((len(files), 1 if self.gray else 3, *self.size), np.float32)
        for row, (_, file) in zip(x, files, strict=True):
            row[:] = self._pixels(file)
        return RawExamples(x, np.array([name for name, _ in files]))

    def _pixels(self, file: Path) -> NDArray[Any]:
        """``[channels, height, width]`` in [0, 1]."""
        try:
            from PIL import Image
        except ImportError:
            raise MissingExtra("image_folder", "pillow", "data") from None
        try:
            with Image.open(file) as image:
                mode, size = image.mode, (self.size[1], self.size[0])
                if mode.startswith("I;16"):  # what is over 255 would be cut off
                    gray = Image.fromarray(np.asarray(image, np.float32) / 65535).resize(size, Image.Resampling.BICUBIC)
                    return np.repeat(np.asarray(gray)[None].clip(0, 1), 1 if self.gray else 3, axis=0)
                if mode in ("I", "F"):
                    raise ConfigError(
                        f"{file}: expected 8 or 16 bits for each pixel and channel; got Pillow's mode {mode!r}."
                    )
                plain = image.convert("RGBA") if mode == "P" and "transparency" in image.info else image
                resized = plain.convert("L" if self.gray else "RGB").resize(size)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise ConfigError(f"{file}: cannot be read as an image: {why_not(file, error)}.") from None
        values = np.asarray(resized, np.float32) / 255
        return values[None] if self.gray else values.transpose(2, 0, 1)


def _entries(folder: Path) -> list[Path]:
    """What is in a folder, in the order of the names, without what starts with a dot."""
    try:
        return sorted((one for one in folder.iterdir() if not one.name.startswith(".")), key=lambda one: one.name)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be opened: {oneline(error)}.") from None


def _images(folder: Path, *, may_be_empty: bool) -> list[Path]:
    inside = _entries(folder)
    files = [file for file in inside if file.suffix.lower() in ENDINGS]
    if not files and not (may_be_empty and not inside):
        got = (
            "folders; the test part has to stand in test/CLASS beside train/CLASS"
            if any(map(Path.is_dir, inside))
            else "none"
        )
        raise ConfigError(f"{folder}: expected images ({', '.join(ENDINGS)}); got {got}.")
    return [regular(file) for file in files]
