"""What the tasks of a DAG, and its own outputs, may name of the tasks before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posttrain.engine.graph.fanout import gather
from posttrain.engine.nodes import FAN, Node, retried
from posttrain.engine.scope import Referred, TemplateScope

if TYPE_CHECKING:
    from posttrain.engine.run.dag import DagBody


class DagScope:
    """Scopes over the nodes of one DAG as they stand when something is looked up."""

    def __init__(self, dag: DagBody):
        self.dag, self.plan = dag, dag.plan

    def of_task(self, task: str) -> TemplateScope:
        """What the arguments of a task may name: the outputs of all it depends on."""

        def find(name: str) -> Referred | None:
            if name not in self.plan.tasks or not self.plan.is_ancestor(name, task):
                return None
            return self._offered(name)

        return self.dag.scope(find, lambda: self.plan.ancestors(task))

    def of_outputs(self) -> TemplateScope:
        """What the DAG's own outputs may name."""
        return self.dag.scope(self._offered_to_outputs, lambda: list(self.plan.tasks))

    def _offered(self, task: str) -> Referred | None:
        node = self.dag.task_node(task)
        if node is None:
            return None
        offered = self.dag.referred(node)
        if node["type"] == FAN:
            return Referred({**offered.variables, **gather(self.dag.items_of(node))}, offered.artifacts)
        if node["phase"] in ("Skipped", "Omitted"):
            return Referred({**self._absent_outputs(task), **offered.variables}, offered.artifacts)
        return offered

    def _absent_outputs(self, task: str) -> dict[str, str]:
        """The declared outputs of a task that did not run read as nothing."""
        try:
            template, _ = self.dag.run.library.resolve(self.plan.tasks[task], self.dag.call.inner_source)
        except LookupError:
            return {}
        declared = (template.get("outputs") or {}).get("parameters") or []
        return {f"outputs.parameters.{one['name']}": "" for one in declared}

    def _offered_to_outputs(self, task: str) -> Referred | None:
        node: Node | None = self.dag.task_node(task)
        if node is None:
            return None
        offered = self.dag.referred(node)
        if node["type"] == FAN:
            items = [one for one in self.dag.items_of(node) if not retried(one)]
            return Referred({**gather(items), **offered.variables}, offered.artifacts)
        return offered
