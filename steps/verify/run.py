from __future__ import annotations

import logging
from dataclasses import asdict

from posttrain.contract import StepContext
from posttrain.contract.files import write_json
from posttrain.contract.ref import Ref
from posttrain.evaluation.schema import from_table
from posttrain.lake import open_table
from posttrain.serving.client import ChatClient
from posttrain.serving.verification import VerificationFailed, verify
from steps.verify import Config, Inputs, Outputs

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Inputs, config: Config) -> Outputs:
    field = "verify.results"
    table = open_table(context.workspace, inputs.results, field=field, verify=True).to_table()
    results, how = from_table(table, field=field)
    release = Ref.parse(inputs.release, field="verify.release").uri
    client = ChatClient(f"http://{inputs.address}:{config.port}", timeout=config.requirements.timeout_seconds)

    client.wait_healthy(config.wait_seconds)
    root = client.model().get("root", release)
    if not f"/{root}".endswith(f"/{release}"):
        raise VerificationFailed(f"failed: the server at {client.url} serves {root}, which is not {release}")
    count = min(config.requirements.prompts, len({r.id for r in results}))
    with context.progress.task("verify", count, "prompts") as task:
        right = 0

        def show(correct: bool) -> None:
            nonlocal right
            right += correct
            task.advance(1, accuracy=right / (task.done + 1))

        found = verify(client, results, how, config.requirements, show)
    client.close()
    write_json(context.directory / "verification.json", asdict(found) | {"prompts": count})
    if found.reasons:
        raise VerificationFailed("failed: " + "; ".join(found.reasons))
    log.info("served accuracy %.1f %%, the evaluation's %.1f %%", 100 * found.accuracy, 100 * found.recorded_accuracy)
    return Outputs(
        verdict=f"passed: {count} prompts",
        served_accuracy=found.accuracy,
        latency_p50_ms=round(found.latency_p50_ms, 1),
        latency_p99_ms=round(found.latency_p99_ms, 1),
        tokens_per_second=round(found.tokens_per_second, 1),
    )
