"""A trajectory's ids: what was sampled stays as it was sampled; what rewrites the past forks, with its reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.llmm import ir
from posttrain.llmm.ir.tokens import wrong
from posttrain.llmm.tokens.history import History, Rewrites, Sampled
from posttrain.llmm.tokens.messages import answer, template_messages
from posttrain.llmm.tokens.parsers import gather, parser_for
from tests.llmm.tokens.families import FAMILIES, model

ADD = ir.Tool(name="add", description="adds", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
END = {"qwen3": "<|im_end|>", "chatml": "<|im_end|>", "glm4moe": "<|user|>"}


def user(text: str) -> ir.Message:
    return ir.Message(role="user", parts=(ir.Text(text=text),))


def result(call: ir.ToolCall, text: str) -> ir.Message:
    return ir.Message(role="tool", parts=(ir.ToolResult(call=call.id, content=(ir.Text(text=text),)),))


@dataclass
class Run:
    """Client and gateway in one: what the model samples is given, `seen` holds the ids the engine was asked with."""

    name: str = "qwen3"
    rewrites: Rewrites = "fork"
    tools: tuple[ir.Tool, ...] = (ADD,)
    seen: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = model(self.name)
        self.history = History(self.model.codec, rewrites=self.rewrites)

    def ask(self, messages: Sequence[ir.Message], sampled: str | list[int], *, end: bool = True) -> ir.Message:
        request = ir.ChatRequest(messages=tuple(messages), tools=self.tools or None)
        prompt = self.model.prompt(request, restore=self.history.restore)
        plan = self.history.plan(prompt)
        self.seen.append(plan.ids)
        ids = self.model.codec.encode(sampled) if isinstance(sampled, str) else list(sampled)
        text = self.model.codec.decode(ids)
        if end:
            ids += self.model.codec.encode(FAMILIES[self.name].eos)
        parser = parser_for(self.model.format, thinking=prompt.thinking)
        message = answer(gather([*parser.feed(text), *parser.finish()]), request)
        logprobs = tuple(-0.1 * (n + 1) for n in range(len(ids)))
        said = template_messages(ir.ChatRequest(messages=(message,))).messages[0]
        self.history.add(plan, Sampled(tuple(ids), logprobs, ((3, 0, len(ids)),)), said)
        return message

    def only(self) -> ir.Tokens:
        [row] = self.history.rows()
        return row.tokens


def without_thought(message: ir.Message) -> ir.Message:
    """As a client of Chat Completions sends it back."""
    kept = tuple(part for part in message.parts if not isinstance(part, ir.Reasoning))
    return ir.Message(role="assistant", parts=kept)


THINK_AND_CALL = '<think>\nI add.\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a":%d}}\n</tool_call>'


def test_twenty_turns_with_tools_are_one_row_of_the_ids_that_the_engine_saw():
    run, messages = Run(), [user("add up")]
    for turn in range(20):
        said = run.ask(messages, THINK_AND_CALL % turn)
        [call] = [part for part in said.parts if isinstance(part, ir.ToolCall)]
        messages += [without_thought(said), result(call, f"sum {turn}")]
    run.ask(messages, "<think>\nDone.\n</think>\n\n190")
    tokens = run.only()
    assert run.history.forks == {}
    for earlier, later in zip(run.seen, run.seen[1:], strict=False):
        assert later[: len(earlier)] == earlier
    assert tokens.ids[: len(run.seen[-1])] == run.seen[-1]
    assert wrong(tokens) is None
    sampled = [run.model.codec.decode(tokens.ids[s.start : s.end]) for s in tokens.spans if s.trainable]
    assert sampled == [THINK_AND_CALL % turn + "<|im_end|>" for turn in range(20)] + [
        "<think>\nDone.\n</think>\n\n190<|im_end|>"
    ]


def test_a_template_that_drops_old_thoughts_forks_when_the_user_speaks_again():
    run = Run()
    first = run.ask([user("hi")], "<think>\nHm.\n</think>\n\nhello")
    run.ask([user("hi"), first, user("and?")], "<think>\nHm.\n</think>\n\nwell")
    assert run.history.forks == {"reasoning_dropped": 1}
    assert [row.turns for row in run.history.rows()] == [(0,), (1,)]
    assert "Hm." not in run.model.codec.decode(run.seen[1])


def test_a_thought_that_the_wire_lost_makes_no_new_row_while_tools_run():
    """Chat Completions has no field for it; the template of the family shows it until the next user's message."""
    run, messages = Run(), [user("add")]
    said = run.ask(messages, THINK_AND_CALL % 1)
    [call] = [part for part in said.parts if isinstance(part, ir.ToolCall)]
    run.ask([*messages, without_thought(said), result(call, "2")], "<think>\n\n</think>\n\n2")
    assert run.history.forks == {} and len(run.history.rows()) == 1


def test_ids_that_text_does_not_lead_back_to_are_kept():
    """`ab` sampled as two tokens is one when it is tokenised again."""
    run = Run("chatml", tools=())
    codec = run.model.codec
    letters = [i for letter in "The answer" for i in codec.encode(letter)]
    assert codec.decode(letters) == "The answer" and codec.encode("The answer") != letters
    first = run.ask([user("a")], letters)
    run.ask([user("a"), first, user("b")], "x")
    assert run.history.forks == {}
    assert run.seen[1][len(run.seen[0]) :][: len(letters)] == tuple(letters)


def test_half_a_character_at_the_end_is_kept():
    run = Run("chatml", tools=())
    first = run.ask([user("a")], run.model.codec.encode("x😀")[:-1], end=False)
    run.ask([user("a"), first, user("b")], "y")
    assert first.parts == (ir.Text(text="x\ufffd"),)
    assert run.history.forks == {} and len(run.history.rows()) == 1


def test_an_answer_cut_off_goes_on_behind_the_end_that_the_template_writes():
    run = Run("chatml", tools=())
    first = run.ask([user("a")], "The answ", end=False)
    run.ask([user("a"), first, user("b")], "x")
    tokens = run.only()
    ends = [i for i, token in enumerate(tokens.ids) if token in run.model.ends]
    mask = ir.loss_mask(tokens)
    assert [mask[i] for i in ends] == [0, 0, 0, 1]  # user, answer cut off, user, answer


def test_results_in_another_order_than_the_calls_are_those_of_their_calls():
    two = "\n".join(f'<tool_call>\n{{"name": "add", "arguments": {{"a": {n}}}}}\n</tool_call>' for n in (1, 2))
    run = Run()
    said = run.ask([user("x")], "<think>\nTwo.\n</think>\n\n" + two)
    one, other = [part for part in said.parts if isinstance(part, ir.ToolCall)]
    run.ask([user("x"), said, result(other, "TWO"), result(one, "ONE")], "ok")
    text = run.model.codec.decode(run.seen[1])
    assert text.index("ONE") < text.index("TWO")
    assert run.history.forks == {}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda m: [user("other"), *m[1:]], "message_edited"),
        (lambda m: [m[0], ir.Message(role="assistant", parts=m[1].parts[:-1]), *m[2:]], "tool_calls_cleared"),
        (lambda m: [*m[:2], ir.Message(role="tool", parts=(ir.ToolResult(
            call=m[2].parts[0].call, content=(ir.Text(text="[Old tool result content cleared]"),)),)), *m[3:]],
         "tool_result_changed"),
        (lambda m: [m[0], *m[3:]], "history_cut"),
        (lambda m: [ir.Message(role="system", parts=(ir.Text(text="be brief"),)), *m], "history_cut"),
    ],
)  # fmt: skip
def test_an_edited_history_forks_with_its_reason(edit, reason):
    run, messages = Run(), [user("add")]
    said = run.ask(messages, THINK_AND_CALL % 1)
    messages += [said, result(said.parts[-1], "2")]
    messages += [run.ask(messages, "<think>\n\n</think>\n\ndone"), user("more")]
    run.history.forks.clear()
    run.ask(edit(messages), "<think>\n\n</think>\n\nx")
    assert list(run.history.forks) == [reason]


def test_another_system_message_is_told():
    def system(text):
        return ir.Message(role="system", parts=(ir.Text(text=text),))

    run = Run("chatml", tools=())
    first = run.ask([system("a"), user("x")], "y")
    run.ask([system("b"), user("x"), first, user("z")], "y")
    assert run.history.forks == {"system_changed": 1}


def test_a_sub_agents_conversation_is_no_fork():
    run = Run("chatml", tools=())
    first = run.ask([user("main")], "y")
    run.ask([user("sub")], "z")
    run.ask([user("main"), first, user("go on")], "y")
    assert run.history.forks == {}
    assert [row.turns for row in run.history.rows()] == [(1,), (0, 2)]


def test_two_answers_to_one_prompt_are_two_rows_whose_common_past_counts_once():
    run = Run("chatml", tools=())
    first = run.ask([user("a")], "b")
    for text in ("c", "d"):
        run.ask([user("a"), first, user("again")], text)
    assert run.history.forks == {"sampled_again": 1}
    one, other = run.history.rows()
    assert [sum(ir.loss_mask(row.tokens)) for row in (one, other)] == [4, 2]
    assert wrong(other.tokens) is None


def test_rewritten_arguments_fork_or_are_kept_as_they_were_sampled():
    compact = "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value></tool_call>"  # the template breaks a line
    for rewrites, forks in (("fork", {"whitespace": 1}), ("keep", {})):
        run = Run("glm4moe", rewrites)
        said = run.ask([user("x")], "\n<think></think>\n" + compact, end=False)
        run.ask([user("x"), said, result(said.parts[-1], "2")], "\n<think></think>\nok", end=False)
        assert run.history.forks == forks, rewrites
        assert len(run.history.rows()) == 1 + len(forks)
        if rewrites == "keep":
            text = run.model.codec.decode(run.seen[1])
            assert compact in text and text.count("<|observation|>") == 1 and text.endswith("<|assistant|>")


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
edits = st.sampled_from(["go on", "edit", "again", "drop"])


@given(st.lists(st.tuples(words, words, edits), min_size=1, max_size=6))
def test_whatever_a_client_does_each_sampled_token_is_in_the_loss_once(turns):
    run, messages = Run("chatml", tools=()), []
    sampled = 0
    for said, answered, edit in turns:
        if edit == "edit" and messages:
            messages[0] = user("changed " + said)
        elif edit == "drop":
            messages = messages[2:]
        messages = [*messages, user(said)]
        reply = run.ask(messages, answered)
        sampled += len(run.model.codec.encode(answered)) + 1
        messages = messages if edit == "again" else [*messages, reply]
    rows = run.history.rows()
    assert sum(sum(ir.loss_mask(row.tokens)) for row in rows) == sampled
    assert all(wrong(row.tokens) is None for row in rows)
    assert all(run.history.ids(row.turns[-1]) == row.tokens.ids for row in rows)


def test_arguments_come_back_to_the_letter():
    run = Run()
    thought = ir.Reasoning(text="One.")
    said = run.ask(
        [user("x")], '<think>\nOne.\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a":   1e0}}\n</tool_call>'
    )
    call = said.parts[-1]
    assert isinstance(call, ir.ToolCall) and call.arguments == '{"a":   1e0}'
    echoed = ir.ToolCall(name="add", id=call.id, arguments=json.loads(call.arguments))  # a vendor that sends objects
    run.ask([user("x"), ir.Message(role="assistant", parts=(thought, echoed)), result(call, "1")], "ok")
    assert run.history.forks == {} and '{"a":   1e0}' in run.model.codec.decode(run.seen[1])
