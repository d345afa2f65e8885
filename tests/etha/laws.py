"""What holds of every class of models, checked in the process that has the model (ranks.py)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.etha.slices import Want
from tests.etha import ranks

if TYPE_CHECKING:
    import torch


def loads_exactly_its_part(family: str, configuration: dict[str, Any], directory: Path, **engine: Any) -> str:
    """For one rank and for each of two: what is wanted is what is needed, once; loading from it alone makes the same
    parameters as loading from the checkpoint, byte by byte. The class that vLLM has made is returned."""
    import torch

    from posttrain.etha.wants import learn, load

    tensors = ranks.checkpoint(family, configuration, directory)
    specs = ranks.specs(tensors)
    for of in (1, 2):
        for number in range(of):
            with ranks.rank(directory, number, of, **engine) as config:
                reference, model = ranks.empty(config), ranks.empty(config)
                ranks.load(reference, tensors)
                wants = learn(model, specs)
                needed = ranks.numbers(ranks.contents(reference).values())
                wanted = ranks.numbers(staged(wants, tensors).values())
                assert torch.equal(wanted, needed)
                assert sum(want.box.numel for want in wants) == len(needed), "an element is wanted twice"
                load(model, specs, staged(wants, tensors))
                assert_same(ranks.contents(model), ranks.contents(reference))
    return type(model).__name__


def changes_while_it_is_live(family: str, configuration: dict[str, Any], directory: Path, **engine: Any) -> None:
    """A model that serves, packed for this machine, becomes the one that another checkpoint starts with: twice, in the
    memory that it has, and after an update that broke off. Learning changes nothing of it."""
    import torch

    from posttrain.etha import reload
    from posttrain.etha.wants import learn, load

    specs = ranks.specs(ranks.checkpoint(family, configuration, directory))
    torch.manual_seed(0)
    first, *later = ({name: torch.randn(spec.shape) for name, spec in specs.items()} for _ in range(3))
    with ranks.rank(directory, 1, 2, **engine) as config:
        model = ranks.served(config, first)
        before, places = ranks.contents(model), [each.data_ptr() for each in model.parameters()]
        wants = learn(model, specs)
        assert_same(ranks.contents(model), before)
        reload.begin(model)
        for tensors in later:
            reload.begin(model)
            load(model, specs, staged(wants, tensors))
            reload.finish(model, config.model_config)
            after = ranks.contents(model)
            assert_same(after, ranks.contents(ranks.served(config, tensors)))
            assert not any(torch.equal(before[name], after[name]) for name in after if name.endswith(" packed"))
            before = after
        assert [each.data_ptr() for each in model.parameters()] == places
        assert learn(model, specs) == wants


def staged(wants: tuple[Want, ...], tensors: dict[str, torch.Tensor]) -> dict[Want, torch.Tensor]:
    from posttrain.etha.wants import dtype

    return {want: tensors[want.name][want.box.index()].to(dtype(want.format), copy=True) for want in wants}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    import torch

    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
