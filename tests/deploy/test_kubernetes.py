"""deploy/kubernetes.yaml, where there is no cluster: against the schemas of Kubernetes, and held to our rules."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from skep.cli.parser import build
from skep.config.loading import FIELDS, load
from tests.deploy.test_deploy_files import DEPLOY

OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
ROLES = {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] == "StatefulSet"}
MAPS = {one["metadata"]["name"]: one["data"] for one in OBJECTS if one["kind"] == "ConfigMap"}
#: what docs/deploying.md puts into the Secret
SECRETS = {"database", "token", "ca.crt", "link.crt", "link.key"}


@pytest.mark.parametrize("one", OBJECTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_each_object_is_one_of_kubernetes(one: dict[str, Any]) -> None:
    kubernetes_validate.validate(one, "1.30", strict=True)
    assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == "skep"


def test_every_part_of_a_fleet_is_there() -> None:
    assert set(ROLES) == {"coordinator", "aggregator", "manager", "worker"}
    for one in OBJECTS:
        if one["kind"] == "Service":
            ((_, role),) = one["spec"]["selector"].items()
            assert role in ROLES
    names = {f"coordinator-{n}.coordinator:7338" for n in range(ROLES["coordinator"]["spec"]["replicas"])}
    assert set(MAPS["member"]["SKEP_COORDINATORS"].split(",")) == names


@pytest.mark.parametrize("role", ROLES)
def test_settings_secrets_and_commands_are_real(role: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (container,) = ROLES[role]["spec"]["template"]["spec"]["containers"]
    assert build().parse_args(container["args"]).run == f"server:{role}"
    given = {key: value for one in container["envFrom"] for key, value in MAPS[one["configMapRef"]["name"]].items()}
    for one in container.get("env", ()):
        if secret := one.get("valueFrom", {}).get("secretKeyRef"):
            assert secret["key"] in SECRETS
        if one["name"].startswith("SKEP_"):
            given[one["name"]] = one.get("value", "")
    assert {key.removeprefix("SKEP_").lower() for key in given} <= set(FIELDS)
    files = {value.removeprefix("/secret/") for value in given.values() if value.startswith("/secret/")}
    assert files <= SECRETS
    load(given, warn=pytest.fail)


@pytest.mark.parametrize("role", ROLES)
def test_nobody_is_root_and_what_matters_is_on_a_volume(role: str) -> None:
    spec = ROLES[role]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not pod["enableServiceLinks"], "a Service called skep would set variables that look like settings"
    claims = {one["metadata"]["name"] for one in spec.get("volumeClaimTemplates", ())}
    assert ("data" in claims) is (role != "manager")
    volumes = claims | {one["name"] for one in pod["volumes"]}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
