"""Z85: the examples and the laws of its specification."""

from __future__ import annotations

import random

import pytest

from ropewalk.zmq.utils import z85


def test_the_specification_s_example() -> None:
    assert z85.encode(b"\x86\x4f\xd2\x6f\xb5\x59\xf7\x5b") == b"HelloWorld"
    assert z85.decode(b"HelloWorld") == z85.decode("HelloWorld") == b"\x86\x4f\xd2\x6f\xb5\x59\xf7\x5b"


def test_what_was_encoded_is_decoded() -> None:
    chance = random.Random(1)
    for length in (0, 4, 8, 32, 400):
        data = chance.randbytes(length)
        assert z85.decode(z85.encode(data)) == data
    for word in (b"\0" * 4, b"\xff" * 4):
        assert z85.decode(z85.encode(word)) == word


@pytest.mark.parametrize("data", [b"a", b"abc", b"abcde"])
def test_only_whole_words_are_encoded(data: bytes) -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        z85.encode(data)


@pytest.mark.parametrize("text", [b"abcd", b"abcdef", b"abcd~", b"\x80abcd", b"#####", "größe"])
def test_what_no_encoder_makes_is_refused(text: bytes | str) -> None:
    with pytest.raises(ValueError):
        z85.decode(text)
