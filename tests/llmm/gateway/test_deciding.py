"""What is decided without a network: who gets a request, when it is refused, what ids become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.llmm import ir
from posttrain.llmm.gateway.assemble import Assembler, UntilStop
from posttrain.llmm.gateway.engine import Piece, TokenLogprob, _Logprobs
from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.limits import Bucket, KeyLimits
from posttrain.llmm.gateway.replicas import Replica, choose
from posttrain.llmm.gateway.sampling import sampling_parameters
from posttrain.llmm.gateway.settings import GatewaySettings, LimitSettings, ShadowSettings, VersionSettings
from posttrain.llmm.gateway.versions import Versions, pick
from posttrain.llmm.ir.stream import Fold
from tests.llmm.tokens.families import model

loads = st.lists(st.integers(0, 20), min_size=1, max_size=6)
QWEN = model("qwen2_5")


def replicas(running: list[int]) -> list[Replica]:
    return [Replica(f"http://engine-{n}", running=load) for n, load in enumerate(running)]


@given(loads, st.text(max_size=8))
def test_a_conversation_stays_unless_its_engine_has_clearly_more_to_do(running: list[int], name: str):
    found = choose(replicas(running), name, slack=4)
    home = choose(replicas([0] * len(running)), name)
    assert found is not None and home is not None
    assert found.running <= min(running) + 4
    if running[replicas(running).index(Replica(home.url, running=running[int(home.url[-1])]))] <= min(running) + 4:
        assert found.url == home.url


@given(loads, st.lists(st.text(max_size=4), min_size=20, max_size=20), st.integers(0, 5))
def test_when_an_engine_goes_only_its_conversations_move(running: list[int], names: list[str], gone: int):
    before = replicas([0] * len(running))
    left = [replica for n, replica in enumerate(before) if n != gone % len(before)]
    for name in names:
        was, now = choose(before, name), choose(left, name)
        assert was is not None and (now is None or was not in left or now == was)


def test_what_drains_or_does_not_answer_gets_nothing():
    some = replicas([0, 0, 0])
    some[0].healthy, some[1].draining = False, True
    assert {choose(some, str(n)).url for n in range(20)} == {"http://engine-2"}  # type: ignore[union-attr]
    assert choose(some, "x", tried={"http://engine-2"}) is None


def test_weights_share_the_traffic_and_a_seed_keeps_its_version():
    weights = {"a": 3.0, "b": 1.0, "c": 0.0}
    picked = [pick(weights, str(n)) for n in range(4000)]
    assert picked == [pick(weights, str(n)) for n in range(4000)]
    assert picked.count("c") == 0 and abs(picked.count("b") / 4000 - 0.25) < 0.03


def test_versions_are_pinned_kept_and_rolled_back():
    versions = Versions(GatewaySettings(versions=[VersionSettings("old"), VersionSettings("new", weight=0)]))
    assert versions.choose("x").name == "old" and versions.choose("x", pinned="new").name == "new"
    versions.set_weights({"new": 1})
    assert versions.choose("x").name == "new" and versions.choose("x", kept="old").name == "new"
    versions.set_weights({"new": 1, "old": 1})
    assert versions.choose("x", kept="old").name == "old"
    versions.rollback()
    versions.rollback()
    assert versions.choose("x").name == "old"
    for bad in ({"none": 1.0}, {"old": 0.0}, {"old": -1.0}):
        with pytest.raises(GatewayError):
            versions.set_weights(bad)
    with pytest.raises(GatewayError, match="never changed"):
        versions.rollback()


@given(st.integers(1, 600), st.lists(st.tuples(st.floats(0, 30), st.integers(1, 50)), max_size=20))
def test_no_more_flows_out_of_a_bucket_than_flowed_in(per_minute: int, steps: list[tuple[float, int]]):
    now = [0.0]
    bucket, taken, largest = Bucket(per_minute, lambda: now[0]), 0, 0
    for seconds, units in steps:
        now[0] += seconds
        if bucket.wait() == 0:
            bucket.take(units)
            taken, largest = taken + units, max(largest, units)
    assert taken <= per_minute + now[0] * per_minute / 60 + largest


def test_a_key_over_its_limits_is_told_when_to_come_back():
    now = [0.0]
    limits = KeyLimits(LimitSettings(concurrency=1, requests_per_minute=2, tokens_per_minute=100), lambda: now[0])
    limits.enter()
    with pytest.raises(GatewayError, match="1 requests under way"):
        limits.enter()
    limits.leave(500)
    with pytest.raises(GatewayError, match="tokens of a minute") as refused:
        limits.enter()
    now[0] += refused.value.retry_after or 0
    limits.enter()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (lambda: GatewaySettings(rewrites="x"), "rewrites: must be fork or keep"),
        (lambda: GatewaySettings(versions=[]), "versions: must be at least one"),
        (lambda: GatewaySettings(versions=[VersionSettings(replicas=[])]), "versions.main: has no replicas"),
        (lambda: GatewaySettings(versions=[VersionSettings(weight=0)]), "must not all be 0"),
        (lambda: GatewaySettings(shadow=ShadowSettings("x", 0.5)), "shadow.version: is no version"),
    ],
)
def test_settings_that_make_no_sense_are_told_in_one_line(settings: Any, told: str):
    with pytest.raises(UserError, match=told):
        settings()


# Ids to answers


def request(**more: Any) -> ir.ChatRequest:
    tool = ir.Tool(name="f", parameters={"type": "object"})
    return ir.ChatRequest(messages=(), tools=(tool,), sampling=ir.Sampling(**more))


def assembler(asked: ir.ChatRequest) -> Assembler:
    return Assembler(QWEN, asked, response="r", name="m", created=1.0, thinking=False, prompt_tokens=5, policy=3)


def piece(ids: list[int], index: int = 0, finish: str | None = None, stop: str | None = None) -> Piece:
    content = [TokenLogprob(token_id=i, logprob=-0.5) for i in ids]
    return Piece(index, ids, _Logprobs(content), finish, stop)


def answered(asked: ir.ChatRequest, pieces: list[list[Piece]]) -> tuple[ir.ChatResponse, Assembler]:
    made, fold = assembler(asked), Fold()
    for deltas in [made.begin(), *map(made.take, pieces), made.finish()]:
        for delta in deltas:
            fold.add(delta)
    return fold.response(), made


TEXT = 'Grüße 😀\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
END = QWEN.codec.encode("<|im_end|>")


def without_ids(response: ir.ChatResponse) -> Any:
    """Calls get ids of their own each time."""
    parts = [
        [(p.name, p.arguments) if isinstance(p, ir.ToolCall) else p for p in c.message.parts] for c in response.choices
    ]
    return parts, [c.stop for c in response.choices], response.usage


@given(st.lists(st.integers(1, 6), max_size=40), st.integers(1, 3))
def test_an_answer_does_not_depend_on_how_it_comes(sizes: list[int], samples: int):
    ids = [*QWEN.codec.encode(TEXT), *END]
    whole, facts = answered(request(n=samples), [[piece(ids, n, "stop") for n in range(samples)]])
    pieces, at = [], 0
    for size in [*sizes, len(ids)]:
        cut = ids[at : at + size]
        at += size
        last = "stop" if at >= len(ids) and cut else None
        pieces.append([piece(cut, n, last) for n in range(samples)])
    streamed, streamed_facts = answered(request(n=samples), pieces)
    assert without_ids(streamed) == without_ids(whole)
    assert streamed_facts.sampled() == facts.sampled()
    assert whole.choices[0].stop == "tool_calls" and whole.usage == ir.Usage(
        input=5, output=len(ids) * samples, total=5 + len(ids) * samples
    )
    assert facts.sampled()[0].ids == tuple(ids) and facts.sampled()[0].policy == ((3, 0, len(ids)),)


def test_a_stop_text_inside_a_token_ends_the_answer_there_and_keeps_the_token():
    ids = QWEN.codec.encode("one answer is 12")
    [token] = [i for i in ids if "answer" in QWEN.codec.token_text(i) or "wer" in QWEN.codec.token_text(i)][:1]
    stop = QWEN.codec.token_text(token).strip()[1:]
    response, facts = answered(
        request(stop=(stop,)), [[piece([i])] for i in ids] + [[piece([], finish="stop", stop=stop)]]
    )
    [text] = response.choices[0].message.parts
    assert isinstance(text, ir.Text) and text.text == "one answer is 12".partition(stop)[0]
    assert (response.choices[0].stop, response.choices[0].stop_sequence) == ("stop_sequence", stop)
    assert facts.sampled()[0].ids == tuple(ids)


@given(
    st.text("ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=3), max_size=2), st.lists(st.integers(1, 4))
)
def test_stop_texts_are_found_across_pieces(text: str, stops: list[str], sizes: list[int]):
    until, said, at = UntilStop(stops), "", 0
    for size in [*sizes, len(text) + 1]:
        said += until.feed(text[at : at + size])
        at += size
    said += until.finish()
    first = min((text.find(stop) for stop in stops if stop in text), default=len(text))
    assert until.found is not None or said == text
    assert until.found is None or (said + until.found == text[: len(said) + len(until.found)] and len(said) >= first)


def test_only_an_answer_that_the_engine_ended_is_whole():
    made = assembler(request())
    made.take([piece([1, 2])])
    assert not made.whole
    made.take([piece([], finish="abort")])
    assert not made.whole


def test_an_engine_that_never_tells_usage_is_counted_by_its_ids():
    """Some servers send none with a stream, some none when it is cut off."""
    response, made = answered(request(n=2), [[piece([1, 2]), piece([3], 1)], [piece([4], finish="length")]])
    assert response.usage == made.usage == ir.Usage(input=5, output=4, total=9)


def test_several_declared_ends_are_no_text():
    two = frozenset([*END, *QWEN.codec.encode("<|endoftext|>")])
    several = model("qwen2_5").__class__(QWEN.codec, QWEN.template, QWEN.format, two, 4096)
    for end in two:
        made = Assembler(several, request(), response="r", name="m", created=1.0, thinking=False, prompt_tokens=1)
        made.take([piece([*QWEN.codec.encode("hi"), end], finish="stop")])
        made.finish()
        assert made.response().choices[0].message.parts == (ir.Text(text="hi"),)
        assert made.sampled()[0].ids[-1] == end


def test_what_is_not_said_is_sent_as_neutral():
    sent = sampling_parameters(ir.ChatRequest(messages=()), QWEN, 10, thinking=False)
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["repetition_penalty"]) == (1.0, 1.0, 0, 1.0)
    assert sent["logprobs"] == 0 and sent["max_tokens"] == 4086


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (ir.ChatRequest(messages=(), sampling=ir.Sampling(n=0)), 422),
        (ir.ChatRequest(messages=(), sampling=ir.Sampling(max_tokens=0)), 422),
        (ir.ChatRequest(messages=(), tool_choice=ir.ToolChoice(mode="named", names=("g",))), 422),
        (ir.ChatRequest(messages=(), format=ir.Format(type="schema")), 422),
    ],
)
def test_what_cannot_be_asked_of_the_engine_is_refused(asked: ir.ChatRequest, status: int):
    with pytest.raises(GatewayError) as refused:
        sampling_parameters(asked, QWEN, 10, thinking=False)
    assert refused.value.status == status


def test_a_prompt_without_room_for_an_answer_is_refused():
    with pytest.raises(GatewayError, match="5000 tokens and the model's context is 4096"):
        sampling_parameters(ir.ChatRequest(messages=()), QWEN, 5000, thinking=False)


@pytest.mark.parametrize("name", ["gemma3", "phi3"])
def test_a_model_that_knows_no_calls_cannot_be_made_to_write_one(name: str):
    asked = ir.ChatRequest(
        messages=(), tools=(ir.Tool(name="f", parameters={}),), tool_choice=ir.ToolChoice(mode="required")
    )
    with pytest.raises(GatewayError, match="cannot be forced") as refused:
        sampling_parameters(asked, model(name), 10, thinking=False)
    assert refused.value.status == 422
