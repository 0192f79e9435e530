"""Fashion-MNIST (Xiao, Rasul & Vollgraf, 2017), from files that are there: FedGuard fetches nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedguard.contracts import Data, Dataset, Preparation
from fedguard.errors import ConfigError
from fedguard.tasks.data.assembly import assemble_dataset
from fedguard.tasks.data.files import require_path
from fedguard.tasks.data.idx import read_parts

#: Where the files are looked for: Debian's package, and the user's cache.
FOLDERS = "/usr/share/datasets/fashion-mnist", "~/.cache/fashion-mnist"
#: Of the unpacked files. Debian packs them anew, so upstream's sums of the .gz files do not hold there.
SHA256 = {
    "train-images": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


@dataclass(frozen=True, kw_only=True)
class FashionMNIST(Data):
    """70,000 gray images of clothes, 28 x 28 pixels in [0, 1], 10 classes; 10,000 of them for testing.

    Its four files, plain or gzipped, are read from ``folder``, or else from the Debian package ``dataset-fashion-mnist``, or
    else from ``~/.cache/fashion-mnist``. A file with other content than the published one is refused.

    Args:
        folder: that holds the files.
    """

    name = "fashion_mnist"
    source = "Xiao, Rasul & Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning, 2017"

    folder: str | None = None

    @property
    def preparation(self) -> Preparation:
        return Preparation("given", "pixels of 0 ... 255, 10 classes")

    def load(self) -> Dataset:
        folder = _find() if self.folder is None else require_path(self.folder, "folder")
        train, test = read_parts(folder, 255, SHA256)
        return assemble_dataset(str(folder), train, test, value_range=(0.0, 1.0), classes=10)


def _find() -> Path:
    """The first folder that is there.

    Raises:
        ConfigError: none is.
    """
    for folder in FOLDERS:
        if (path := Path(folder).expanduser()).is_dir():
            return path
    raise ConfigError(
        f"fashion_mnist: expected its four files in {' or '.join(FOLDERS)}; there is no such folder. Install Debian's package "
        f"(apt install dataset-fashion-mnist), or put the files of github.com/zalandoresearch/fashion-mnist into {FOLDERS[1]}, "
        "or name their folder: {name: fashion_mnist, folder: FOLDER}."
    )
