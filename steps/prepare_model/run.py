"""The work of `prepare_model`: all of it is in `posttrain.models.prepare`."""

from __future__ import annotations

from transformers.utils.logging import disable_progress_bar

from posttrain.contract import Nothing, Ref, StepContext
from posttrain.models.prepare import STAGES, prepare
from steps.prepare_model import Config, Outputs, check


def run(context: StepContext, inputs: Nothing, config: Config) -> Outputs:
    check(config, context.workspace)
    disable_progress_bar()  # one bar, ours
    with context.progress.task("prepare model", total=len(STAGES), unit="stages") as task:
        prepared = prepare(
            context.workspace,
            config.source,
            name=config.name,
            template=context.workspace / config.chat_template if config.chat_template else None,
            tiny=config.tiny,
            seed=context.seed,
            report=lambda stage: task.advance(1, stage=stage),
        )
    ref = Ref(context.relative(prepared.directory), digest=prepared.digest)
    return Outputs(str(ref), prepared.parameters, prepared.context_length)
