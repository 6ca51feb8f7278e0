"""Z85: bytes as printable text, four bytes as five characters.

Source: ZeroMQ RFC 32, https://rfc.zeromq.org/spec/32/
"""

from __future__ import annotations

import struct

Z85CHARS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {character: value for value, character in enumerate(Z85CHARS)}
_WEIGHTS = tuple(85**power for power in (4, 3, 2, 1, 0))


def encode(rawbytes: bytes) -> bytes:
    """Return the text for `rawbytes`, whose length must be a multiple of 4.

    Raises:
        ValueError: the length is not a multiple of 4.
    """
    if len(rawbytes) % 4:
        raise ValueError(f"Z85 encodes a multiple of 4 bytes, not {len(rawbytes)}")
    words: tuple[int, ...] = struct.unpack(f">{len(rawbytes) // 4}I", rawbytes)
    return bytes(Z85CHARS[word // weight % 85] for word in words for weight in _WEIGHTS)


def decode(z85bytes: bytes | str) -> bytes:
    """Return the bytes that the text encodes; its length must be a multiple of 5.

    Raises:
        ValueError: the length is not a multiple of 5, or the text has a character or a group that is invalid in Z85.
    """
    text = z85bytes.encode("ascii") if isinstance(z85bytes, str) else bytes(z85bytes)
    if len(text) % 5:
        raise ValueError(f"Z85 decodes a multiple of 5 characters, not {len(text)}")
    words: list[int] = []
    try:
        for start in range(0, len(text), 5):
            group = text[start : start + 5]
            words.append(
                sum(_VALUES[character] * weight for character, weight in zip(group, _WEIGHTS, strict=True))
            )
        return struct.pack(f">{len(words)}I", *words)
    except KeyError as error:
        raise ValueError(f"{chr(error.args[0])!r} is not a character of Z85") from None
    except struct.error:
        raise ValueError("a group of five characters stands for more than 32 bits") from None
