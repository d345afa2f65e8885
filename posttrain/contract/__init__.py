"""The contract of a step: spec, references, configuration, record. Imports nothing heavy."""

from posttrain.contract.context import StepContext
from posttrain.contract.ref import Ref
from posttrain.contract.spec import Nothing, Resources, StepSpec, live, measured

__all__ = ["Nothing", "Ref", "Resources", "StepContext", "StepSpec", "live", "measured"]
