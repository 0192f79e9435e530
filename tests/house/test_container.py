"""The container and what is composed of it: no daemon is needed to see what they would do.

The steps of the Dockerfile that build are run as they stand, in a fresh folder: `make test-container`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from tests.root import ROOT

LOCAL = r"^127\.0\.0\.1:\d+:\d+$"


@dataclass
class Stage:
    """One stage of a Dockerfile: what it is made from, and its instructions in order."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def of(self, word: str) -> list[str]:
        return [rest for step, rest in self.steps if step == word]


def dockerfile(text: str) -> dict[str, Stage]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ").splitlines()
    stages: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    for line in filter(None, map(str.strip, lines)):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            for key, value in arguments.items():
                base = base.replace(f"${{{key}}}", value)
            stages[name] = Stage(name, base)
        elif not stages:
            key, value = rest.split("=", 1)
            arguments[key] = value
        else:
            list(stages.values())[-1].steps.append((word, " ".join(rest.split())))
    return stages


def chain(stages: dict[str, Stage], name: str) -> list[Stage]:
    """A stage and those it is made from, the first one first."""
    stage = stages[name]
    return [*(chain(stages, stage.base) if stage.base in stages else []), stage]


def wrong(text: str) -> list[str]:
    """What of a Dockerfile breaks the usual rules (those of hadolint that fit here)."""
    stages, said = dockerfile(text), []
    for stage in stages.values():
        if stage.base not in stages and not re.fullmatch(
            r"[\w./-]+:\d+\.\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?", stage.base
        ):
            said.append(f"{stage.base}: a base without a version")
        for word, rest in stage.steps:
            if word == "ADD":
                said.append("ADD instead of COPY")
            if re.search(r"\b(sudo|curl|wget)\b", rest):
                said.append(f"{rest}: fetches what nobody checks")
            if "apt-get install" in rest and "rm -rf /var/lib/apt/lists" not in rest:
                said.append("lists of apt are left")
            if word in ("ENV", "ARG") and re.search(r"(?i)(token|secret|password|api_?key)\w*=", rest):
                said.append(f"{rest}: a secret in a layer")
            if word == "RUN" and re.search(r"pip3? install(?!.*(constraint|==|\[flower\]))", rest):
                said.append(f"{rest}: packages of any version")
    built = {
        source for stage in stages.values() for rest in stage.of("COPY") for source in re.findall(r"--from=(\S+)", rest)
    }
    used = {stage.base for stage in stages.values()} | built
    for name in stages.keys() - used:  # images
        parts = chain(stages, name)
        users = [rest for part in parts for rest in part.of("USER")]
        if not users or users[-1] in ("root", "0") or not users[-1].isdigit():
            said.append(f"{name}: runs as {users[-1] if users else 'root'}")
        if any(re.search(r"\bpip\b", rest) for part in parts for rest in part.of("RUN")):
            said.append(f"{name}: is built in the stage that is shipped")
    return said


FILE = (ROOT / "Dockerfile").read_text()


def test_the_dockerfile_keeps_the_rules():
    assert wrong(FILE) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("USER 10001", "", "flower: runs as root"),
        ("USER 10001", "USER root", "dashboard: runs as root"),
        ("3.12.11-slim-bookworm", "latest", "python:latest: a base without a version"),
        ("COPY . .", "ADD . .", "ADD instead of COPY"),
        ("ARG TORCH=2.13.0", "ARG TORCH=2.13.0\nARG PIP_TOKEN=x", "PIP_TOKEN=x: a secret in a layer"),
        ("WORKDIR /src", "RUN apt-get update && apt-get install -y git", "lists of apt are left"),
        ('"torch==$TORCH"', "torch", "packages of any version"),
        ("FROM base AS flower", "FROM builder AS flower\nUSER 10001", "flower: is built in the stage that is shipped"),
    ],
)
def test_a_broken_rule_is_seen(before, after, said):
    assert before in FILE
    assert any(said in one for one in wrong(FILE.replace(before, after)))


def test_versions_are_those_that_are_tested():
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert f"ARG TORCH={pinned['torch']}" in FILE


def test_nothing_goes_into_an_image_but_what_is_named():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    named = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in named)
    assert named >= {
        "app",
        "attacks",
        "defenses",
        "examples",
        "fedguard",
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
    }
    assert not named & {".git", ".venv", "runs", "build", "tests"}


Strict = ConfigDict(extra="forbid")


class Build(BaseModel):
    model_config = Strict
    context: Literal["."]
    target: Literal["flower", "dashboard"]


class Health(BaseModel):
    model_config = Strict
    test: list[str]
    interval: str
    timeout: str
    retries: int


class Service(BaseModel):
    """What a service here may say, and must: confined, and to be reached from this machine alone."""

    model_config = Strict
    image: Annotated[str, Field(pattern=r"^fedguard(-flower)?:\d+\.\d+\.\d+$")]
    build: Build
    command: list[str]
    ports: list[Annotated[str, Field(pattern=LOCAL)]] = []
    volumes: list[str] = []
    depends_on: dict[str, dict[Literal["condition"], Literal["service_healthy"]]] = {}
    healthcheck: Health | None = None
    profiles: list[str] = []
    restart: Literal["unless-stopped"] | None = None
    read_only: Literal[True]
    tmpfs: list[Literal["/tmp"]]
    cap_drop: tuple[Literal["ALL"]]
    security_opt: tuple[Literal["no-new-privileges:true"]]
    init: Literal[True]


class Composed(BaseModel):
    model_config = Strict
    name: str
    services: dict[str, Service]
    volumes: dict[str, dict[str, str]]


def read(text: str) -> Composed:
    return Composed.model_validate(
        {key: value for key, value in yaml.safe_load(text).items() if not key.startswith("x-")}
    )


COMPOSE = (ROOT / "compose.yaml").read_text()


def test_what_is_composed_is_confined_and_local():
    found = read(COMPOSE)
    nodes = [one for name, one in found.services.items() if name.startswith("supernode")]
    assert len(nodes) == 3 and not any(node.ports for node in nodes)
    configs = [node.command[node.command.index("--node-config") + 1] for node in nodes]
    assert configs == [f"partition-id={number} num-partitions=3" for number in range(3)]
    for node in nodes:
        host, _, port = node.command[node.command.index("--superlink") + 1].partition(":")
        assert set(node.depends_on) == {host} == {"superlink"}
        superlink = found.services[host].command
        assert superlink[superlink.index("--port") + 1] == port
    assert found.services["superlink"].healthcheck is not None
    assert "runs:/runs:ro" in found.services["dashboard"].volumes
    for service in found.services.values():
        named = [volume.split(":")[0] for volume in service.volumes if not volume.startswith(".")]
        assert set(named) <= set(found.volumes)
        assert service.image == ("fedguard-flower" if service.build.target == "flower" else "fedguard") + ":0.1.0"
        assert service.build.target in dockerfile(FILE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("127.0.0.1:8501:8501", "8501:8501"),
        ("read_only: true", "read_only: false"),
        ("cap_drop", "cap_dorp"),
        ("init: true", "init: true\n  privileged: true"),
        ("target: dashboard", "target: flowers"),
    ],
)
def test_a_slip_in_what_is_composed_is_seen(before, after):
    assert before in COMPOSE
    with pytest.raises(ValueError):
        read(COMPOSE.replace(before, after))


def test_commands_of_fedguard_that_are_composed_exist():
    from typer.main import get_command

    from fedguard import cli

    for service in read(COMPOSE).services.values():
        if service.build.target == "dashboard":
            name, *rest = service.command
            command = get_command(cli.app).commands[name]
            command.make_context(name, rest, resilient_parsing=False)


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_commands_of_flower_that_are_composed_are_taken():
    pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    parsers = {"flower-superlink": _parse_args_run_superlink(), "flower-supernode": _parse_args_run_supernode()}
    for service in read(COMPOSE).services.values():
        if service.build.target == "flower":
            parsers[service.command[0]].parse_args(service.command[1:])


@pytest.mark.container
@pytest.mark.parametrize("image", ["dashboard", "flower"])
def test_the_steps_that_build_run_in_a_fresh_folder(image, tmp_path):
    """What the builder's stages do, as they stand: only the paths and the index of packages are this machine's."""
    source, made = tmp_path / "src", tmp_path / "fedguard"
    source.mkdir()
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            path = ROOT / line[1:]
            (shutil.copytree if path.is_dir() else shutil.copy)(path, source / line[1:])
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TORCH_INDEX": "",
    }
    environment |= {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    for stage in chain(dockerfile(FILE), f"{image}-builder"):
        for word, rest in stage.steps:
            if word in ("ENV", "ARG"):
                given = dict(one.split("=", 1) for one in shlex.split(rest))
                environment |= {key: value for key, value in given.items() if key not in environment}
            if word == "RUN":
                step = rest.replace("/opt/fedguard", str(made))
                done = subprocess.run(["sh", "-euc", step], cwd=source, env=environment, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr[-2000:]
    shutil.rmtree(source)  # what is shipped has no sources beside it
    bare = {"PATH": f"{made}/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [made / "bin" / command[0], *command[1:]], cwd=tmp_path, env=bare, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "BAD" not in run("fedguard", "doctor")
    run("fedguard", "init")
    run("fedguard", "run", "suite.yaml", "--set", "seeds=1", "--set", "training.rounds=1", "--jobs", "1")
    assert json.loads(run("fedguard", "show", "suite", "--json"))
    if image == "flower":
        assert "--superlink" in run("flower-supernode", "--help")
    else:
        assert "--address" in run("fedguard", "dashboard", "--help")
