"""The manifests for Kubernetes: no cluster is needed to see what they ask for, and that they start what compose.yaml starts.

Whether they fit Kubernetes' own schemas says `make test-kubernetes`, which gets these into a folder of its own.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.house.test_container import COMPOSE, read
from tests.root import ROOT

FOLDER = ROOT / "examples" / "kubernetes"
TEXT = "---\n".join(path.read_text() for path in sorted(FOLDER.glob("*.yaml")))
#: Of Kubernetes: the first that has the label with a pod's number in its StatefulSet for good, and the newest of the schemas.
VERSIONS = ("1.32", "1.37")
#: What a pod and its container must say.
POD = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def objects(text: str) -> list[dict]:
    return list(yaml.safe_load_all(text))


def makers(found: list[dict]) -> dict[str, dict]:
    """What makes pods, by its name."""
    return {one["metadata"]["name"]: one for one in found if "template" in one.get("spec", {})}


def commands(found: list[dict]) -> dict[str, tuple[str, list[str]]]:
    """By the names that compose.yaml uses, image and arguments; a StatefulSet's pods are numbered from 0."""
    started = {}
    for name, maker in makers(found).items():
        (container,) = maker["spec"]["template"]["spec"]["containers"]
        for number in range(maker["spec"].get("replicas", 1)):
            arguments = [one.replace("$(ORDINAL)", str(number)) for one in container["args"]]
            numbered = f"{name}-{number}" if maker["kind"] == "StatefulSet" else name
            started[numbered] = (container["image"], arguments)
    return started


def loose(spec: dict) -> Iterator[str]:
    """What a pod may do that it need not, and what is missing."""
    (container,) = spec["containers"]
    for given, wanted in ((spec["securityContext"], POD), (container["securityContext"], CONTAINER)):
        yield from (f"{key} is not {value}" for key, value in wanted.items() if given.get(key) != value)
    if spec.get("automountServiceAccountToken") is not False:
        yield "has a token of the cluster"
    if any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
        yield "shares what is the machine's"
    if spec.get("restartPolicy") != "Never" and not {"startupProbe", "livenessProbe"} <= container.keys():
        yield "nobody sees whether it lives"
    if "memory" not in container["resources"]["limits"]:
        yield "may take all memory"
    kinds = {one["name"]: next(key for key in one if key != "name") for one in spec["volumes"]}
    if kinds.keys() != {one["name"] for one in container["volumeMounts"]}:
        yield "volumes and mounts are not the same"
    for kind in kinds.values():
        if kind not in ("emptyDir", "persistentVolumeClaim", "configMap"):
            yield f"{kind} is not its own"


def wrong(text: str) -> list[str]:
    """What a pod may do that it need not, who may reach it that need not, and names that lead nowhere."""
    found = objects(text)
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    templates = {name: maker["spec"]["template"] for name, maker in makers(found).items()}
    said = [f"{name}: {what}" for name, one in templates.items() for what in loose(one["spec"])]

    def chosen(labels: dict) -> bool:
        return any(labels.items() <= one["metadata"]["labels"].items() for one in templates.values())

    for name, template in templates.items():
        near = template["spec"].get("affinity", {}).get("podAffinity", {})
        terms = near.get("requiredDuringSchedulingIgnoredDuringExecution", [])
        if not all(chosen(term["labelSelector"]["matchLabels"]) for term in terms):
            said.append(f"{name}: is near nobody")
        for volume in template["spec"]["volumes"]:
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and ("PersistentVolumeClaim", claim) not in named:
                said.append(f"{name}: nobody claims {claim}")
        (container,) = template["spec"]["containers"]
        for host, port in re.findall(r"--superlink', '([\w.-]+):(\d+)'", str(container["args"])):
            service = named.get(("Service", host))
            if service is None or int(port) not in [one["port"] for one in service["spec"]["ports"]]:
                said.append(f"{name}: no service {host}:{port}")
    for (kind, name), one in named.items():
        spec, place = one.get("spec", {}), one["metadata"].get("namespace")
        if kind != "Namespace" and place != "fedguard":
            said.append(f"{kind} {name}: is in another namespace")
        if kind == "Service" and (spec.get("type", "ClusterIP") != "ClusterIP" or not chosen(spec["selector"])):
            said.append(f"{name}: is reached from without, or is nobody's")
        if kind in ("Deployment", "StatefulSet"):
            own = spec["template"]["metadata"]["labels"]
            if not spec["selector"]["matchLabels"].items() <= own.items():
                said.append(f"{name}: does not find its own pods")
        if kind == "NetworkPolicy" and spec["podSelector"] and not chosen(spec["podSelector"]["matchLabels"]):
            said.append(f"{name}: is a rule for nobody")
        if kind == "StatefulSet" and f"num-partitions={spec['replicas']}" not in str(spec):
            said.append(f"{name}: replicas are not num-partitions")
    closed = [one["spec"] for one in found if one["kind"] == "NetworkPolicy" and one["spec"]["podSelector"] == {}]
    if closed != [{"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}]:
        said.append("what is not allowed is not forbidden")
    if named["Namespace", "fedguard"]["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") != "restricted":
        said.append("the namespace lets anything in")
    return said


def test_they_are_confined_and_reached_from_within_alone():
    assert wrong(TEXT) == []
    assert set(makers(objects(TEXT))) == {"superlink", "supernode", "dashboard", "suite"}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("runAsNonRoot: true", "runAsNonRoot: false", "superlink: runAsNonRoot"),
        ("runAsUser: 10001", "runAsUser: 0", "superlink: runAsUser"),
        ("seccompProfile: {type: RuntimeDefault}", "seccompProfile: {type: Unconfined}", "superlink: seccompProfile"),
        ("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "superlink: allowPrivilegeEscalation"),
        ("readOnlyRootFilesystem: true, ", "", "superlink: readOnlyRootFilesystem"),
        ("drop: [ALL]", "drop: [ALL], add: [NET_ADMIN]", "superlink: capabilities"),
        ("automountServiceAccountToken: false", "automountServiceAccountToken: true", "superlink: has a token"),
        ("enableServiceLinks: false", "hostNetwork: true", "superlink: shares what is the machine's"),
        ("livenessProbe: {tcpSocket", "lifecycle: {tcpSocket", "superlink: nobody sees whether it lives"),
        ("limits: {memory: 4Gi}", "limits: {cpu: 2}", "superlink: may take all memory"),
        ("emptyDir: {medium: Memory}", "hostPath: {path: /tmp}", "superlink: hostPath is not its own"),
        ("claimName: runs", "claimName: run", "dashboard: nobody claims run"),
        ("{name: runs, mountPath: /runs, readOnly: true}", "{name: tmp, mountPath: /runs}", "dashboard: volumes and mounts"),
        ("ports: [{port: 8000}]", "ports: [{port: 8001}]", "supernode: no service superlink:8000"),
        ("type: ClusterIP", "type: NodePort", "superlink: is reached from without"),
        ("selector: {app: dashboard}", "selector: {app: dashbord}", "dashboard: is reached from without, or is nobody's"),
        ("labels: {app: supernode}", "labels: {app: node}", "supernode: does not find its own pods"),
        ("matchLabels: {app: superlink}}\n  policyTypes", "matchLabels: {app: link}}\n  policyTypes", "superlink: is a rule for nobody"),
        ("{app: dashboard}}}\n      containers", "{app: runs}}}\n      containers", "suite: is near nobody"),
        ("replicas: 3", "replicas: 4", "supernode: replicas are not num-partitions"),
        ("policyTypes: [Ingress, Egress]", "policyTypes: [Ingress]", "what is not allowed is not forbidden"),
        ("name: dashboard, namespace: fedguard", "name: dashboard", "Service dashboard: is in another namespace"),
        ("enforce: restricted", "enforce: baseline", "the namespace lets anything in"),
    ],
)  # fmt: skip
def test_a_slip_is_seen(before, after, said):
    assert before in TEXT
    assert any(said in one for one in wrong(TEXT.replace(before, after, 1)))


def test_they_start_what_is_composed():
    composed = {name: (one.image, one.command) for name, one in read(COMPOSE).services.items()}
    assert commands(objects(TEXT)) == composed


@pytest.mark.kubernetes
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("version", VERSIONS)
def test_they_fit_the_schemas_of_kubernetes(version):
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: make test-kubernetes"
    )
    found = objects(TEXT)
    for one in found:
        validate.validate(one, version, strict=True)
    spoiled = copy.deepcopy(found[-1])
    spoiled["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(validate.ValidationError):
        validate.validate(spoiled, version, strict=True)
