from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tristream.backend.merging import merge_deltas
from tristream.parsers.events import Notice
from tristream.parsers.message import MessageDelta, ToolCallDelta, Usage, fold

texts = st.one_of(st.none(), st.text("abc", min_size=1, max_size=3))
calls = st.builds(
    ToolCallDelta,
    st.integers(0, 2),
    st.one_of(st.none(), st.just("id")),
    st.one_of(st.none(), st.just("name")),
    st.text("{}", max_size=2),
    st.sampled_from([None, "complete", "invalid"]),
)
notices = st.builds(Notice, st.sampled_from(["stray_marker", "recovered_end"]), st.integers(1, 2), st.integers(0, 9))
entries = st.lists(st.builds(lambda token: {"token": token}, st.text("xy", max_size=1)), max_size=2).map(tuple)
deltas = st.builds(
    MessageDelta,
    reasoning=texts,
    content=texts,
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    notices=st.lists(notices, max_size=2).map(tuple),
    token_ids=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    logprobs=entries,
    reasoning_logprobs=entries,
    choice_index=st.integers(0, 1),
)
ends = st.tuples(texts, st.sampled_from([None, Usage(1, 2)])).map(
    lambda end: MessageDelta(content=end[0], finish_reason="stop", usage=end[1])
)


def spoken(stream: list[MessageDelta]) -> list[Any]:
    """What is said, piece by piece, in the order it is said, neighbours of one field joined."""
    pieces: list[Any] = []
    for delta in stream:
        said: list[tuple[Any, str]] = []
        if delta.reasoning is not None:
            said.append(("reasoning", delta.reasoning))
        if delta.content is not None:
            said.append(("content", delta.content))
        said += [(call.index, call.arguments) for call in delta.tool_calls]
        for field, text in said:
            key = (delta.choice_index, field)
            if pieces and pieces[-1][0] == key:
                pieces[-1] = (key, pieces[-1][1] + text)
            else:
                pieces.append((key, text))
    return pieces


@given(st.lists(deltas, max_size=12), st.lists(ends, max_size=1))
@settings(max_examples=300)
def test_the_fold_and_the_order_stay(stream: list[MessageDelta], end: list[MessageDelta]) -> None:
    stream += end
    merged = merge_deltas(stream)
    for index in (0, 1):
        before = [delta for delta in stream if delta.choice_index == index]
        after = [delta for delta in merged if delta.choice_index == index]
        assert fold(after) == fold(before)
    assert spoken(merged) == spoken(stream)
    assert len(merged) <= len(stream)


def test_text_of_one_field_is_one_delta() -> None:
    assert merge_deltas([MessageDelta(content=char) for char in "abcd"]) == [MessageDelta(content="abcd")]


def test_fields_in_their_order_join() -> None:
    call = ToolCallDelta(0, "id", "f", "{")
    merged = merge_deltas(
        [
            MessageDelta(reasoning="r"),
            MessageDelta(content="c"),
            MessageDelta(tool_calls=(call,)),
            MessageDelta(tool_calls=(ToolCallDelta(0, arguments="}", status="complete"),)),
            MessageDelta(tool_calls=(ToolCallDelta(1, "id2", "g", "{}", "complete"),)),
            MessageDelta(finish_reason="tool_calls", usage=Usage(1, 2)),
        ]
    )
    assert merged == [
        MessageDelta(
            reasoning="r",
            content="c",
            tool_calls=(ToolCallDelta(0, "id", "f", "{}", "complete"), ToolCallDelta(1, "id2", "g", "{}", "complete")),
            finish_reason="tool_calls",
            usage=Usage(1, 2),
        )
    ]


def test_an_order_that_goes_back_starts_anew() -> None:
    stream = [MessageDelta(content="a"), MessageDelta(reasoning="b"), MessageDelta(content="c")]
    assert merge_deltas(stream) == [MessageDelta(content="a"), MessageDelta(reasoning="b", content="c")]


def test_choices_stay_apart() -> None:
    stream = [MessageDelta(content="a"), MessageDelta(content="b", choice_index=1), MessageDelta(content="c")]
    assert merge_deltas(stream) == stream


def test_a_single_delta_is_itself() -> None:
    delta = MessageDelta(content="a")
    assert merge_deltas([delta])[0] is delta
    assert merge_deltas([]) == []
