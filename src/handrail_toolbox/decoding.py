"""Text and bytes: which encoding a file is in, and its lines.

    text, encoding = decode(data)
    data, encoding = encode(text, encoding)

Rule 1: an encoding is inferred only from bytes that allow no other; nothing is read as what it merely might be.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from contextlib import suppress

from handrail.errors import NoEffect


def decode(data: bytes) -> tuple[str, str]:
    """Return the text of a file and the encoding it was read in.

    A byte order mark decides; then UTF-8, which other encodings hardly ever pass for; then GB18030, where most of what
    is not ASCII is common Chinese, for it takes nearly any bytes. Nothing else is guessed.

    >>> decode("天气".encode("gb18030"))
    ('天气', 'gb18030')

    Raises:
        ValueError: It is no text, or in another encoding; the message says which.
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            try:
                return data.decode(encoding), encoding
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"begins like {encoding} and goes on as something else"
                ) from error
    if b"\0" in data or len(data.translate(None, _CONTROLS)) < 0.95 * len(data):
        raise ValueError("is binary")
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8"), "utf-8"
    with suppress(UnicodeDecodeError):
        text = data.decode("gb18030")
        foreign = [char for char in text if not char.isascii()]
        if sum(map(_is_common_chinese, foreign)) >= 0.8 * len(foreign):
            return text, "gb18030"
    raise ValueError("is in an encoding that is none of UTF-8, UTF-16 and GB18030")


_MARKS = {BOM_UTF8: "utf-8-sig", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}
_CONTROLS = bytes({*range(32)} - set(b"\t\n\r\f\x1b"))


def _is_common_chinese(char: str) -> bool:
    """Whether it is in GB 2312: 6,763 ideographs and the punctuation, of the 27,000 that GB18030 can write."""
    try:
        return len(char.encode("gb2312")) == 2
    except UnicodeEncodeError:
        return False


def encode(text: str, encoding: str) -> tuple[bytes, str]:
    """Return text in the encoding of the file it replaces, in UTF-8 where that cannot write it."""
    with suppress(UnicodeEncodeError):
        return text.encode(encoding), encoding
    try:
        return text.encode("utf-8"), "utf-8"
    except UnicodeEncodeError as error:
        raise NoEffect(
            "NOT_TEXT",
            "`text` holds half a character.",
            suggestion="Write whole characters.",
        ) from error


def split_lines(text: str) -> list[str]:
    """Return the lines with their ends, numbered as every editor does: `splitlines` would end one at U+2028 too."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
