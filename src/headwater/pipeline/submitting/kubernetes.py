"""A pipeline on Kubernetes: an image, and the objects of a Deployment whose driver asks for executors.

The driver runs in client mode in a pod of its own, which a Deployment starts again whenever it ends: a pipeline goes on
where it was. `Recreate` never has two at a time, and if a node is cut off and two run all the same, the lake's lease
keeps the second from writing. Executors are pods that the driver asks the API server for, with the rights of its
service account: pods, config maps and claims of its own namespace, nothing else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from headwater.pipeline.submitting.plan import Files, Plan, container_memory, defaults

API_SERVER: Final = "k8s://https://kubernetes.default.svc"
DRIVER_PORT: Final = 7078
BLOCK_PORT: Final = 7079
METRICS_PORT: Final = 9464
FOLDER: Final = "/etc/headwater"
ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
EXECUTOR: Final = "headwater.pipeline.submitting.executor"
ASK: Final = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{METRICS_PORT}/healthz', timeout=5)"
OWNER: Final = "--conf spark.kubernetes.driver.pod.name=$(POD_NAME) pyspark-shell"
"""Executors belong to the driver's pod: Kubernetes removes them with it."""
BLOCK: Final = re.compile(r"[!-~][ -~]*\n([ -~]*\n)*[ -~]+\n")
"""Texts that are written as they are, line by line."""
OTHERS: Final = re.compile(r"[^ -~]")
FAREWELL: Final = 120
"""Seconds in which the driver may end its step."""
IMAGE_BASE: Final = "python:3.12-slim"
USER: Final = 185


@dataclass(frozen=True)
class Kubernetes:
    """`secret` names a Secret whose entries are the environment: HEADWATER_REST__TOKEN, AWS_SECRET_ACCESS_KEY …"""

    image: str
    namespace: str = "default"
    secret: str | None = None


def files(plan: Plan, cluster: Kubernetes) -> Files:
    objects = [
        account(plan, cluster),
        role(plan, cluster),
        binding(plan, cluster),
        settings(plan, cluster),
        service(plan, cluster),
        deployment(plan, cluster),
    ]
    return {"Dockerfile": dockerfile(), "kubernetes.yaml": "---\n".join(as_yaml(each) for each in objects)}


def commands(plan: Plan, cluster: Kubernetes) -> list[list[str]]:
    """Which make it run, in the folder of the files."""
    return [["kubectl", "apply", "--filename", "kubernetes.yaml"]]


def dockerfile() -> str:
    return f"""\
# The image of driver and executors: docker build --tag IMAGE . && docker push IMAGE
FROM {IMAGE_BASE}
RUN pip install --no-cache-dir 'headwater[spark,java,objects,metrics,lineage]'
USER {USER}
"""


def spark_settings(plan: Plan, cluster: Kubernetes) -> dict[str, str]:
    return {
        **plan.common(),
        "spark.master": API_SERVER,
        "spark.submit.deployMode": "client",
        "spark.driver.host": f"{plan.name}.{cluster.namespace}.svc",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_PORT),
        "spark.kubernetes.namespace": cluster.namespace,
        "spark.kubernetes.container.image": cluster.image,
        "spark.kubernetes.executor.podNamePrefix": plan.name,
        "spark.kubernetes.executor.deleteOnTermination": "true",
        "spark.kubernetes.authenticate.caCertFile": f"{ACCOUNT}/ca.crt",
        "spark.kubernetes.authenticate.oauthTokenFile": f"{ACCOUNT}/token",
        "spark.kubernetes.executor.podTemplateFile": f"{FOLDER}/executor.yaml",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        **plan.spark,
    }


def executor(plan: Plan, cluster: Kubernetes) -> dict[str, Any]:
    """What Spark's own description of an executor is put on."""
    container = {
        "name": "executor",
        "image": cluster.image,
        "command": ["python3", "-m", EXECUTOR],
        **_careful(cluster),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {**_labels(plan), "app.kubernetes.io/component": "executor"}},
        "spec": {"securityContext": {"runAsNonRoot": True}, "containers": [container]},
    }


def _careful(cluster: Kubernetes) -> dict[str, Any]:
    """What all containers have: few rights, and the environment of the Secret."""
    found: dict[str, Any] = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
    if cluster.secret is not None:
        found["envFrom"] = [{"secretRef": {"name": cluster.secret}}]
    return found


# ---- objects ---------------------------------------------------------------------------------------------------------


def _meta(plan: Plan, cluster: Kubernetes) -> dict[str, Any]:
    return {"name": plan.name, "namespace": cluster.namespace, "labels": _labels(plan)}


def _labels(plan: Plan, component: str = "driver") -> dict[str, str]:
    """What selects the driver must not select executors: the Deployment would take them for its own."""
    found = {"name": "headwater-pipeline", "instance": plan.name, "component": component}
    return {f"app.kubernetes.io/{key}": value for key, value in found.items()}


def account(plan: Plan, cluster: Kubernetes) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(plan, cluster)}


def role(plan: Plan, cluster: Kubernetes) -> dict[str, Any]:
    verbs = ["create", "get", "list", "watch", "patch", "update", "delete", "deletecollection"]
    rules = [
        {"apiGroups": [""], "resources": ["pods", "configmaps", "persistentvolumeclaims"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]},
    ]
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    return {**about, "metadata": _meta(plan, cluster), "rules": rules}


def binding(plan: Plan, cluster: Kubernetes) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": _meta(plan, cluster),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": plan.name},
        "subjects": [{"kind": "ServiceAccount", "name": plan.name, "namespace": cluster.namespace}],
    }


def settings(plan: Plan, cluster: Kubernetes) -> dict[str, Any]:
    data = {
        "pipeline.toml": plan.config,
        "spark-defaults.conf": defaults(spark_settings(plan, cluster)),
        "executor.yaml": as_yaml(executor(plan, cluster)),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(plan, cluster), "data": data}


def service(plan: Plan, cluster: Kubernetes) -> dict[str, Any]:
    """Headless: by its name, executors find the driver."""
    ports = [("driver", DRIVER_PORT), ("blocks", BLOCK_PORT), ("metrics", METRICS_PORT)]
    spec = {
        "clusterIP": "None",
        "selector": _labels(plan),
        "publishNotReadyAddresses": True,  # executors register before a round has ended
        "ports": [{"name": name, "port": port, "targetPort": port} for name, port in ports],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _meta(plan, cluster), "spec": spec}


def deployment(plan: Plan, cluster: Kubernetes) -> dict[str, Any]:
    pod = {
        "serviceAccountName": plan.name,
        "terminationGracePeriodSeconds": FAREWELL,
        "securityContext": {"runAsNonRoot": True, "fsGroup": USER},
        "containers": [_driver(plan, cluster)],
        "volumes": [
            {"name": "settings", "configMap": {"name": plan.name}},
            {"name": "work", "emptyDir": {}},
        ],
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _labels(plan)},
        "template": {"metadata": {"labels": _labels(plan)}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta(plan, cluster), "spec": spec}


def _driver(plan: Plan, cluster: Kubernetes) -> dict[str, Any]:
    """Others may read its figures if there is a Secret, in which HEADWATER_METRICS_TOKEN has to be; else it is asked
    for its health from inside."""
    host = "127.0.0.1" if cluster.secret is None else "0.0.0.0"
    inside = {"exec": {"command": ["python3", "-c", ASK]}}
    health = inside if cluster.secret is None else {"httpGet": {"path": "/healthz", "port": METRICS_PORT}}
    memory = f"{container_memory(plan.driver_memory)}Mi"
    words = plan.words(f"{FOLDER}/pipeline.toml")
    return {
        "name": "driver",
        "image": cluster.image,
        "command": ["headwater", *words, "--master", API_SERVER, "--metrics", f"{host}:{METRICS_PORT}"],
        "workingDir": "/work",
        "env": [
            {"name": "SPARK_CONF_DIR", "value": FOLDER},
            {"name": "HOME", "value": "/work"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "PYSPARK_SUBMIT_ARGS", "value": OWNER},
        ],
        "resources": {"requests": {"cpu": "1", "memory": memory}, "limits": {"memory": memory}},
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "startupProbe": {**health, "timeoutSeconds": 10, "periodSeconds": 10, "failureThreshold": 60},
        "livenessProbe": {**health, "timeoutSeconds": 10, "periodSeconds": 30, "failureThreshold": 3},
        "volumeMounts": [
            {"name": "settings", "mountPath": FOLDER, "readOnly": True},
            {"name": "work", "mountPath": "/work"},
        ],
        **_careful(cluster),
    }


# ---- YAML ------------------------------------------------------------------------------------------------------------


def as_yaml(value: Any, indent: int = 0) -> str:
    """A document. Scalars are written as JSON, which is YAML; printable texts of several lines as blocks."""
    space = "  " * indent
    if isinstance(value, dict):
        return "".join(f"{space}{key}:{_behind(each, indent)}" for key, each in value.items())
    found = ""
    for each in value:
        if isinstance(each, dict) and each:
            found += f"{space}- {as_yaml(each, indent + 1).lstrip()}"
        else:
            found += f"{space}- {_scalar(each)}\n"
    return found


def _behind(value: Any, indent: int) -> str:
    if isinstance(value, dict | list) and value:
        return f"\n{as_yaml(value, indent + 1)}"
    if isinstance(value, str) and BLOCK.fullmatch(value):
        return " |\n" + "".join(f"{'  ' * (indent + 1)}{line}\n" if line else "\n" for line in value[:-1].split("\n"))
    return f" {_scalar(value)}\n"


def _scalar(value: Any) -> str:
    """YAML takes characters for what they are, but for those that it does not let through."""
    return OTHERS.sub(lambda found: f"\\U{ord(found[0]):08x}", json.dumps(value, ensure_ascii=False))
