"""Answers of a model to conversations, sampled offline by vLLM in this process.

Invariants: a conversation's samples depend on the model, the settings, the seed and its own name, and not on
which others are asked beside it, but for rounding; nothing is loaded before the model directory was found whole.

vLLM in this process sets the threads of torch for good: sample in a process of its own.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.errors import UserError
from posttrain.evaluation.settings import Sampling
from posttrain.models.layout import check_directory
from posttrain.serving.settings import EngineSettings, engine_arguments, on_gpu, variables

log = logging.getLogger(__name__)

Messages = Sequence[dict[str, str]]


@dataclass(frozen=True)
class Completion:
    """`tokens` counts the sampled ones; `finish_reason` is "stop" at the model's end, "length" where it was cut."""

    text: str
    tokens: int
    finish_reason: str


class Sampler:
    """A loaded model. Raises UserError for a directory that holds no model or one without a chat template."""

    def __init__(self, model: Path, settings: EngineSettings, *, seed: int = 0, field: str = "model"):
        check_directory(model, field=field)
        gpu = on_gpu()
        os.environ.update(variables(settings, gpu=gpu))
        from vllm import LLM

        arguments = engine_arguments(settings, model, gpu=gpu, seed=seed)
        self._length, self._seed, self._field = arguments["max_model_len"], seed, field
        self._llm = LLM(**arguments, disable_log_stats=True, use_tqdm_on_load=False)
        self._tokenizer = self._llm.get_tokenizer()

    def sample(
        self,
        conversations: Sequence[Messages],
        names: Sequence[str],
        sampling: Sampling,
        on_answer: Callable[[int, list[Completion]], None],
    ) -> None:
        """Call `on_answer(index, completions)` for each conversation as its `sampling.samples` are complete.

        `names` are the conversations' ids: seeds are drawn from them. Raises UserError naming the conversation
        that leaves no room for `sampling.max_tokens`.
        """
        from vllm import RequestOutput, TokensPrompt

        engine, open_requests = self._llm.llm_engine, len(names)
        prompts = [self._tokens(m, n, sampling) for m, n in zip(conversations, names, strict=True)]
        for index, (tokens, name) in enumerate(zip(prompts, names, strict=True)):
            engine.add_request(str(index), TokensPrompt(prompt_token_ids=tokens), self._parameters(name, sampling))
        while engine.has_unfinished_requests():
            for output in engine.step():
                assert isinstance(output, RequestOutput)
                found = [Completion(o.text, len(o.token_ids), str(o.finish_reason)) for o in output.outputs]
                on_answer(int(output.request_id), found)
                open_requests -= 1
        assert not open_requests, "the engine lost requests"

    def _tokens(self, messages: Messages, name: str, sampling: Sampling) -> list[int]:
        from jinja2 import TemplateError

        try:
            tokens: Any = self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
            )
        except (TemplateError, ValueError) as problem:
            raise UserError(f"the model's chat template fails on row {name}: {problem}", field=self._field) from None
        if len(tokens) + sampling.max_tokens > self._length:
            raise UserError(
                f"row {name} has {len(tokens)} tokens, which with sampling.max_tokens {sampling.max_tokens} is "
                f"more than the context of {self._length}",
                field="engine.context_length",
                remedy="raise it, or lower sampling.max_tokens",
            )
        return tokens

    def _parameters(self, name: str, sampling: Sampling) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        drawn = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
        return SamplingParams(
            n=sampling.samples,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            output_kind=RequestOutputKind.FINAL_ONLY,
            seed=int.from_bytes(drawn[:4], "big") if sampling.temperature else None,
        )
