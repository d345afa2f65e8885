"""Asks a served model what the evaluation asked, in the way it asked, and has the answers judged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from posttrain.evaluation.schema import How, Result
from posttrain.reward.score import score
from posttrain.serving.checks import Asked, Verification, judge
from posttrain.serving.client import ChatClient, Reply, ServerFailed
from posttrain.serving.requirements import Requirements


class VerificationFailed(ServerFailed):
    """What is served is not what was evaluated."""


def verify(
    client: ChatClient, results: Sequence[Result], how: How, requirements: Requirements,
    on_answer: Callable[[bool], None] = lambda correct: None,
) -> Verification:  # fmt: skip
    """Ask `requirements.prompts` of the evaluation's prompts again, spread evenly over the set.

    Raises ServerFailed where the server stops answering. `on_answer` hears of each answer whether it is right.
    """
    model = client.model()["id"]
    prompts = spread([r for r in results if r.sample == 0], requirements.prompts)

    def ask(recorded: Result, temperature: float = how.sampling.temperature) -> Reply:
        messages = json.loads(recorded.messages)
        sampling = {"max_tokens": how.sampling.max_tokens, "temperature": temperature, "top_p": how.sampling.top_p}
        return client.chat(model, messages, **sampling)

    repeated = [
        (ask(recorded, 0.0).text, ask(recorded, 0.0).text) for recorded in spread(prompts, requirements.repeats)
    ]
    started = time.monotonic()
    asked = []
    with ThreadPoolExecutor(requirements.concurrency) as pool:
        pending = {pool.submit(ask, recorded): recorded for recorded in prompts}
        try:
            for done in as_completed(pending):
                recorded, reply = pending[done], done.result()
                verdict = score(recorded.verifier, recorded.answer, recorded.metadata, reply.text, form=how.form)
                asked.append(Asked(recorded, reply, verdict))
                on_answer(verdict.correct)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    seconds = time.monotonic() - started
    return judge(asked, repeated, seconds, requirements, greedy=how.sampling.temperature == 0)


def spread(results: Sequence[Result], count: int) -> list[Result]:
    """At most `count` of `results`, evenly spread."""
    places = sorted({i * len(results) // count for i in range(count)}) if results and count else []
    return [results[place] for place in places]
