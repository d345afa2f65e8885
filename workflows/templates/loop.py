"""The loop of iterations as a recursion: a DAG that runs one iteration, its evaluation beside the next, and itself.

    rl ┬ evaluate
       └ again (the same template, one number higher, while there are more to do)

Services stand outside: one that was started within would outlive every inner iteration. What the last iteration gave
comes out of the outermost one, through each.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from hera.workflows import DAG, Parameter, Task
from hera.workflows.models import ValueFrom

from posttrain.contract import StepSpec
from workflows.templates.step import argo_name, step_arguments

NAME = "iterate"
MOST = 99  # Argo ends a recursion at its hundredth level
RESULTS = ("model", "checkpoint", "results")


@dataclass(frozen=True)
class Until:
    """At most so many iterations, and none after one whose last mean reward reached `reward` (0: no target)."""

    iterations: int
    reward: float


def loop_template(train: StepSpec, evaluate: StepSpec, until: Until, constants: tuple[str, ...]) -> DAG:
    """The template; `constants` are the inputs of `train` that stay as they are, and `data` is the evaluation's."""
    inputs = ["number", "checkpoint", "data", *constants]
    number = "asInt(inputs.parameters.number)"
    go_on = f"{number} < {until.iterations}"
    if until.reward:
        go_on += f" && asFloat(tasks.rl.outputs.parameters.reward) < {until.reward}"
    given = {name: f"{{{{inputs.parameters.{name}}}}}" for name in inputs}
    with DAG(
        name=NAME,
        inputs=[Parameter(name=name) for name in inputs],
        outputs=[Parameter(name=name, value_from=ValueFrom(expression=_last(name))) for name in RESULTS],
    ) as template:
        Task(
            name="rl", template=argo_name(train.name),
            arguments=_arguments(train, given, step="rl_{{inputs.parameters.number}}"),
        )  # fmt: skip
        Task(
            name="evaluate", template=argo_name(evaluate.name), depends="rl",
            arguments=_arguments(
                evaluate, given | {"model": "{{tasks.rl.outputs.parameters.model}}"},
                step="evaluate_{{inputs.parameters.number}}",
            ),
        )  # fmt: skip
        Task(
            name="again", template=NAME, depends="rl", when=f"{{{{={go_on}}}}}",
            arguments=given | {
                "number": f"{{{{={number} + 1}}}}", "checkpoint": "{{tasks.rl.outputs.parameters.checkpoint}}",
            },
        )  # fmt: skip
    return template


def _last(name: str) -> str:
    own = "tasks.evaluate" if name == "results" else "tasks.rl"
    mine, later = f"{own}.outputs.parameters.{name}", f"tasks.again.outputs.parameters.{name}"
    return f"tasks.again.status == 'Succeeded' ? {later} : {mine}"


def _arguments(spec: StepSpec, given: dict[str, str], *, step: str) -> dict[str, str]:
    """Those of `given` that the step takes."""
    taken = {f.name for f in fields(spec.Inputs)}
    return step_arguments(spec, step, {name: text for name, text in given.items() if name in taken})
