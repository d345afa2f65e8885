"""Running cases on a real Argo, many at a time. The outcomes have the form of those of this machine.

Documents before a case's last one are applied with kubectl, which therefore has to be there.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

from posttrain.argo import Absent, Cluster, Unreachable
from posttrain.argo.kubectl import Kubectl
from posttrain.argo.status import FINAL
from posttrain.engine.conformance.cases import Case, Operation
from posttrain.engine.conformance.compare import describe
from posttrain.engine.conformance.local import Outcome, carry_out
from posttrain.engine.conformance.scheduled import described
from posttrain.engine.cron.rules import OF_CRON
from posttrain.errors import UserError

JSON = dict[str, Any]

_SETTLE_SECONDS = 2.5  # the controller writes late results and hooks after the phase
_POLL_SECONDS = 0.5
_CRON_SECONDS = 130.0


def run_all_on_cluster(
    cases: Iterable[Case],
    cluster: Cluster,
    *,
    namespace: str | None = None,
    account: str | None = None,
    jobs: int = 6,
    limit: float = 150.0,
) -> Iterator[Outcome]:
    """Run cases side by side; outcomes come as they are ready. What a case made is removed after it.

    `account` is the service account of workflows that name none. A case that takes longer than `limit`
    seconds is recorded as it stands.
    """
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(_run_case, one, cluster, namespace, account, limit) for one in cases]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


def _run_case(case: Case, cluster: Cluster, namespace: str | None, account: str | None, limit: float) -> Outcome:
    began = time.monotonic()
    *before, document = deepcopy(case.documents)
    spec = document["spec"] if case.kind == "Workflow" else document["spec"]["workflowSpec"]
    if account:
        spec.setdefault("serviceAccountName", account)
    result: JSON = {}
    refused = ""
    kubectl = Kubectl(namespace)
    if before:
        kubectl.apply(before)
        time.sleep(_SETTLE_SECONDS)  # the controller reads them from a cache
    try:
        cluster.lint(document)
        made = cluster.create(document)
    except Unreachable:
        raise
    except UserError as error:
        refused = str(error)
    else:
        name = made["metadata"]["name"]
        try:
            result = (_workflow if case.kind == "Workflow" else _cron)(case, cluster, name, limit)
        finally:
            _remove(cluster, name, case.kind)
    finally:
        if before:
            kubectl.remove(before)
    return Outcome(case, result, refused, time.monotonic() - began)


def _workflow(case: Case, cluster: Cluster, name: str, limit: float) -> JSON:
    said: list[JSON] = []
    until = time.monotonic() + (case.seconds or limit)
    for operation in case.operations:
        said.append(_operate(cluster, name, operation, until))
    if said:
        time.sleep(_SETTLE_SECONDS)
    workflow = _wait(cluster, name, _settled, until)
    if workflow is None:
        return {"gone": True}
    time.sleep(_SETTLE_SECONDS)
    workflow = _get(cluster, name) or workflow
    result = describe(workflow)
    if said:
        result["operations"] = said
    if not _settled(workflow):
        result["unfinished"] = True
    return result


def _operate(cluster: Cluster, name: str, operation: Operation, until: float) -> JSON:
    if operation.after is not None:
        time.sleep(operation.after)
    if operation.when is not None:
        _wait(cluster, name, lambda found: _is(found, operation.when or ""), until)
    try:
        carry_out(cluster, name, operation)
    except UserError as error:
        return {"operation": operation.text, "ok": False, "error": str(error)}
    return {"operation": operation.text, "ok": True}


def _cron(case: Case, cluster: Cluster, name: str, limit: float) -> JSON:
    time.sleep(case.seconds or _CRON_SECONDS)
    cron = cluster.get(name, "CronWorkflow")
    runs = [one for one in cluster.list_all() if (one["metadata"].get("labels") or {}).get(OF_CRON) == name]
    for one in runs:
        _remove(cluster, one["metadata"]["name"], "Workflow")
    return {"cron": described(cron, [{"phase": one.get("status", {}).get("phase", "")} for one in runs])}


def _wait(cluster: Cluster, name: str, ready: Callable[[JSON], bool], until: float) -> JSON | None:
    """The workflow once it is ready, or as it stands when the time is over; None where it is gone."""
    while True:
        found = _get(cluster, name)
        if found is None or ready(found) or time.monotonic() > until:
            return found
        time.sleep(_POLL_SECONDS)


def _get(cluster: Cluster, name: str) -> JSON | None:
    try:
        return cluster.get(name)
    except Absent:
        return None


def _is(workflow: JSON, phase: str) -> bool:
    return workflow.get("status", {}).get("phase") == phase and (phase not in FINAL or _settled(workflow))


def _settled(workflow: JSON) -> bool:
    """Ended, and labelled so by the controller: later events no longer change it."""
    labels = workflow["metadata"].get("labels") or {}
    ended = workflow.get("status", {}).get("phase") in FINAL
    return ended and labels.get("workflows.argoproj.io/completed") == "true"


def _remove(cluster: Cluster, name: str, kind: str) -> None:
    try:
        cluster.delete(name, kind)
    except Absent:
        return
