"""Maps the top-level folders into one package.

``attacks/``, ``defenses/`` and ``app/`` install as ``fedguard.attacks`` and so on, because generic top-level names in
site-packages would break a user who has an ``attacks/`` of their own. Everything else stands in pyproject.toml.
"""

from setuptools import find_packages, setup

ROOTS = {
    "fedguard": "fedguard",
    "fedguard.attacks": "attacks",
    "fedguard.defenses": "defenses",
    "fedguard.app": "app",
    "fedguard.examples": "examples",
}

setup(
    package_dir=ROOTS,
    packages=[
        name
        for package, folder in ROOTS.items()
        for name in [package, *(f"{package}.{sub}" for sub in find_packages(folder))]
    ],
    package_data={
        "fedguard": ["py.typed", "templates/*", "bench/acceptance/standards/*", "bench/controls/*.yaml"],
        "fedguard.examples": ["*", "anchors/*", "kubernetes/*", "results/*", "toy_plugin/*"],
        "fedguard.app": ["*.svg"],
    },
)
