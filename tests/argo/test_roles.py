"""Who may do what, by the real API server: what is needed is allowed, everything else is forbidden."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.argo import wait
from posttrain.argo.kubectl import Kubectl
from posttrain.argo.logs import read_logs
from posttrain.errors import UserError

from .conftest import NAMESPACE, kubectl, workflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280), pytest.mark.usefixtures("deployment")]

SUBMITTER, VIEWER, WORKFLOW, DEFAULT = "posttrain-submitter", "posttrain-viewer", "posttrain-workflow", "default"

WORKFLOWS = [f"{v} workflows.argoproj.io" for v in ("create", "get", "list", "watch", "update", "patch", "delete")]
LOOKING = ["get workflows.argoproj.io", "list cronworkflows.argoproj.io", "list pods", "get pods/log", "watch events"]
CONTROL = [
    "get secrets", "list secrets", "create secrets", "get configmaps", "patch configmaps", "create pods", "patch pods",
    "create pods/exec", "create pods/attach", "create pods/portforward", "create serviceaccounts",
    "create serviceaccounts/token", "create roles", "create rolebindings", "patch roles", "escalate roles",
    "bind roles",
    "delete persistentvolumeclaims", "create persistentvolumeclaims", "patch resourcequotas", "delete networkpolicies",
    "create deployments.apps", "create jobs.batch", "create workflowtemplates.argoproj.io",
    "impersonate serviceaccounts",
]  # fmt: skip

ALLOWED = {
    SUBMITTER: [*WORKFLOWS, *LOOKING, "create cronworkflows.argoproj.io", "delete pods"],
    VIEWER: LOOKING,
    WORKFLOW: ["create workflowtaskresults.argoproj.io", "patch workflowtaskresults.argoproj.io"],
    DEFAULT: [],
}
FORBIDDEN = {
    SUBMITTER: [*CONTROL, "create workflowtaskresults.argoproj.io"],
    VIEWER: [*CONTROL, *(w for w in WORKFLOWS if w.split()[0] not in ("get", "list", "watch")), "delete pods"],
    WORKFLOW: [*CONTROL, *WORKFLOWS, "list pods", "get pods/log", "list workflowtaskresults.argoproj.io"],
    DEFAULT: [*CONTROL, *WORKFLOWS, *LOOKING],
}
ELSEWHERE = [
    "list workflows.argoproj.io", "create workflows.argoproj.io", "get secrets", "list pods", "list nodes",
    "list namespaces", "create namespaces", "create clusterrolebindings", "create persistentvolumes",
]  # fmt: skip


def allowed(account: str, actions: list[str], namespace: str = NAMESPACE) -> list[str]:
    """Those of the actions (`VERB RESOURCE[.GROUP][/SUBRESOURCE]`) that the API server would let the account do."""
    reviews = {"apiVersion": "v1", "kind": "List", "items": [_review(account, one, namespace) for one in actions]}
    answers = kubectl("create", "-f", "-", "-o", r'jsonpath={.status.allowed}{"\n"}', text=json.dumps(reviews)).stdout
    return [one for one, answer in zip(actions, answers.split(), strict=True) if answer == "true"]


def _review(account: str, action: str, namespace: str) -> dict:
    verb, _, what = action.partition(" ")
    resource, _, subresource = what.partition("/")
    resource, _, group = resource.partition(".")
    wanted = {"verb": verb, "resource": resource, "group": group, "subresource": subresource, "namespace": namespace}
    spec = {"user": f"system:serviceaccount:{NAMESPACE}:{account}", "resourceAttributes": wanted}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


@pytest.mark.parametrize("account", ALLOWED)
def test_what_is_needed_is_allowed_and_the_rest_is_not(account: str) -> None:
    asked = [*ALLOWED[account], *FORBIDDEN[account]]
    assert allowed(account, asked) == ALLOWED[account]
    assert allowed(account, ELSEWHERE, "kube-system") == []


def kubeconfig(directory: Path, account: str) -> Path:
    """A configuration with nothing in it but a token of that account."""
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json").stdout)
    token = kubectl("-n", NAMESPACE, "create", "token", account).stdout.strip()
    config["users"] = [{"name": account, "user": {"token": token}}]
    context = config["contexts"][0]
    context["context"] |= {"user": account, "namespace": NAMESPACE}
    config["current-context"] = context["name"]
    path = directory / f"{account}.kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


@pytest.fixture
def submitter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """A cluster as a submitter without an Argo server has it."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, SUBMITTER)))
    return Kubectl(NAMESPACE)


def final(cluster: Kubectl, name: str) -> dict:
    *_, last = wait(cluster, name, every=0.5)
    return last


def test_a_submitter_submits_watches_reads_logs_stops_and_removes(submitter: Kubectl) -> None:
    first = submitter.create(workflow("echo", "said by the step"))["metadata"]["name"]
    second = submitter.create(workflow("sleep", "120"))["metadata"]["name"]
    ended = final(submitter, first)
    assert ended["status"]["phase"] == "Succeeded"
    assert ("only", "said by the step") in list(read_logs(submitter, ended, lambda _: True))
    submitter.stop(second)
    assert final(submitter, second)["status"]["phase"] == "Failed"
    for name in (first, second):
        submitter.delete(name)


def test_a_submitter_is_refused_by_one_line_that_says_what(submitter: Kubectl, tmp_path: Path) -> None:
    stolen = subprocess.run(
        ["kubectl", "-n", NAMESPACE, "get", "secret", "posttrain-artifacts"], capture_output=True, text=True
    )
    assert "forbidden" in stolen.stderr
    with pytest.raises(UserError, match="forbidden") as refused:
        Kubectl("kube-system").create(workflow("true"))
    assert "\n" not in str(refused.value)


def with_host_path(manifest: dict) -> None:
    manifest["spec"]["volumes"] = [{"name": "node", "hostPath": {"path": "/"}}]
    manifest["spec"]["templates"][1]["container"]["volumeMounts"] = [{"name": "node", "mountPath": "/node"}]


def with_host_network(manifest: dict) -> None:
    manifest["spec"]["hostNetwork"] = True


def privileged(manifest: dict) -> None:
    manifest["spec"]["templates"][1]["container"]["securityContext"] = {"privileged": True}


@pytest.mark.parametrize("reach", [with_host_path, with_host_network, privileged])
def test_no_workflow_reaches_the_node(submitter: Kubectl, reach: Callable[[dict], None]) -> None:
    manifest = workflow("true")
    reach(manifest)
    name = submitter.create(manifest)["metadata"]["name"]
    ended = final(submitter, name)
    assert ended["status"]["phase"] == "Error"
    assert "PodSecurity" in json.dumps(ended["status"])
    submitter.delete(name)


ATTEMPTS = """
import json, ssl, urllib.error, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
token = open(folder + "token").read()
trusted = ssl.create_default_context(cafile=folder + "ca.crt")
for path in ("api/v1/namespaces/NS/secrets", "api/v1/namespaces/NS/pods", "api/v1/nodes",
             "apis/argoproj.io/v1alpha1/namespaces/NS/workflows"):
    asked = urllib.request.Request("https://kubernetes.default.svc/" + path)
    asked.add_header("Authorization", "Bearer " + token)
    try:
        print(path, urllib.request.urlopen(asked, context=trusted, timeout=20).status)
    except urllib.error.HTTPError as refused:
        print(path, refused.code)
"""


def test_a_step_can_do_nothing_with_its_own_token(submitter: Kubectl) -> None:
    name = submitter.create(workflow("python3", "-c", ATTEMPTS.replace("NS", NAMESPACE)))["metadata"]["name"]
    ended = final(submitter, name)
    said = [line for _, line in read_logs(submitter, ended, lambda _: True) if line.startswith("api")]
    assert len(said) == 4
    assert {line.rpartition(" ")[2] for line in said} == {"403"}


def test_the_quota_holds() -> None:
    greedy = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "greedy"},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1000"}}}]},
    }
    asked = kubectl("-n", NAMESPACE, "create", "--dry-run=server", "-f", "-", text=json.dumps(greedy), check=False)
    assert "exceeded quota: posttrain" in asked.stderr
