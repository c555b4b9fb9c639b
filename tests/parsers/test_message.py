"""Deltas, and the message they fold into."""

from __future__ import annotations

from tristream.parsers import MessageDelta, Notice, ToolCall, ToolCallDelta, Usage, fold


def test_fold_joins_in_order() -> None:
    message = fold(
        [
            MessageDelta(reasoning="a", choice_index=2),
            MessageDelta(reasoning="b", content="c", token_ids=(1,), logprobs=({"token": "c"},), choice_index=2),
            MessageDelta(tool_calls=(ToolCallDelta(0, "i", "f"), ToolCallDelta(1, "j", "g", "{")), choice_index=2),
            MessageDelta(tool_calls=(ToolCallDelta(1, arguments="}", status="complete"),), choice_index=2),
            MessageDelta(
                tool_calls=(ToolCallDelta(0, arguments="{}", status="invalid"),), token_ids=(2, 3), choice_index=2
            ),
            MessageDelta(reasoning_logprobs=({"token": "a"},), choice_index=2),
            MessageDelta(content="d", finish_reason="stop", usage=Usage(1, 2), choice_index=2),
        ]
    )
    assert (message.reasoning, message.content, message.finish_reason, message.choice_index) == ("ab", "cd", "stop", 2)
    assert message.tool_calls == [ToolCall("i", "f", "{}", "invalid"), ToolCall("j", "g", "{}", "complete")]
    assert (message.token_ids, message.logprobs) == ([1, 2, 3], [{"token": "c"}])
    assert message.reasoning_logprobs == [{"token": "a"}]
    assert message.usage == Usage(1, 2)


def test_fold_adds_up_notices_by_code() -> None:
    message = fold(
        [
            MessageDelta(notices=(Notice("stray_marker", 1, 9), Notice("unknown_tool", 1, 2))),
            MessageDelta(notices=(Notice("stray_marker", 2, 4),)),
        ]
    )
    assert message.notices == [Notice("stray_marker", 3, 4), Notice("unknown_tool", 1, 2)]


def test_nothing_sent_is_none() -> None:
    message = fold([])
    assert (message.reasoning, message.content, message.tool_calls, message.finish_reason) == (None, None, [], None)
    assert fold([MessageDelta(content="")]).content is None


def test_usage_as_openai_has_it() -> None:
    for usage, shape in (
        (Usage(), {}),
        (Usage(prompt_tokens=3), {"prompt_tokens": 3}),
        (Usage(completion_tokens=3), {"completion_tokens": 3}),
        (
            Usage(3, 4, 1, 2),
            {
                "prompt_tokens": 3,
                "completion_tokens": 4,
                "total_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
        ),
    ):
        assert usage.to_openai() == shape
        assert Usage.from_openai(shape) == usage
    assert Usage.from_openai({"completion_tokens_details": None, "prompt_tokens": 1}) == Usage(1)
