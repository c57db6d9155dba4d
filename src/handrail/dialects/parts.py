"""What a message shows beside its text: images, sounds and files, in one form for every dialect to spell.

They come as `Media`, or as parts of the chat form: `image_url`, `input_audio`, `file`.

Rule 1: what was encoded stays encoded: a picture in a long conversation is not encoded again in each turn.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from handrail.calls import Media
from handrail.core.results import label
from handrail.errors import ConfigError, Json

_DATA_URL = re.compile(r"data:([^;,]*)[^,]*?(;base64)?,")


class Attachment(Struct, frozen=True):
    """An image, a sound or a file. It has `base64`, a `url` or a `file_id`.

    Attributes:
        media_type: `image/*` if only the kind is certain, empty if nothing is.
        base64: Its bytes.
        url: Where the provider can fetch it; never a `data:` URL.
        name: A file's name, where it is informative.
        file_id: The provider's own name for a file that it keeps.
    """

    media_type: str
    base64: str = ""
    url: str = ""
    name: str = ""
    file_id: str = ""

    @property
    def bytes(self) -> bytes:
        """Its bytes; none where they are no base64."""
        try:
            return base64.b64decode(self.base64)
        except ValueError:
            return b""

    @property
    def text(self) -> str:
        """Its bytes as text."""
        return self.bytes.decode("utf-8", "replace")

    @property
    def link(self) -> str:
        """Its URL, or a `data:` URL that holds its bytes."""
        return self.url or data_url(self.media_type, self.base64)

    @property
    def label(self) -> str:
        """How a sentence names it."""
        return f"{self.media_type or 'a file'}{f' ({self.name or self.url})' if self.name or self.url else ''}"

    @property
    def is_text(self) -> bool:
        """Whether its bytes can be read as text."""
        return self.media_type.startswith("text/") or self.media_type.endswith(
            ("/json", "+json", "/xml", "+xml")
        )


def parse_attachment(part: Mapping[str, Json] | Media) -> Attachment | None:
    """Return what a part of a message shows, or None for one that the chat form does not know: it is text, or a
    provider's own.

    Raises:
        ConfigError: It is a part of the chat form, but lacks what it should show.
    """
    if isinstance(part, Media):
        if part.url:
            return _from_url(part.media_type, part.url, part.name)
        return _from_bytes(part)
    kind = part.get("type")
    if isinstance(kind, str):
        parse = _READERS.get(kind)
    else:
        parse = None
    if parse is None:
        return None
    content = part.get(str(kind))
    try:
        return parse(content if isinstance(content, Mapping) else {"url": content})
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"a part of type {kind!r} does not hold what it should show: {error}"
        ) from error


def describe_hidden(media: Media) -> str:
    """Return what a result says of something that the model cannot be shown: no run fails for what a tool returned."""
    return f"not shown: {label(media)}"


def data_url(media_type: str, encoded: str) -> str:
    """Return a `data:` URL of bytes in base64."""
    return f"data:{media_type};base64,{encoded}"


def _from_bytes(media: Media) -> Attachment:
    return Attachment(media.media_type, media.base64, name=media.name)


def _from_url(media_type: str, url: str, name: str = "") -> Attachment:
    """Return what a URL shows: a `data:` URL holds it."""
    if not (head := _DATA_URL.match(url)):
        return Attachment(media_type, url=url, name=name)
    encoded = url[head.end() :]
    if not head[2]:
        encoded = base64.b64encode(unquote_to_bytes(encoded)).decode()
    return Attachment(head[1] or media_type, encoded, name=name)


def _image(fields: Mapping[str, Json]) -> Attachment:
    return _from_url("image/*", _text(fields, "url"))


def _sound(fields: Mapping[str, Json]) -> Attachment:
    return Attachment(f"audio/{_text(fields, 'format')}", _text(fields, "data"))


def _file(fields: Mapping[str, Json]) -> Attachment:
    name = str(fields.get("filename") or "")
    if fields.get("file_id"):
        return Attachment("", name=name, file_id=_text(fields, "file_id"))
    return _from_url("application/octet-stream", _text(fields, "file_data"), name)


def _text(fields: Mapping[str, Json], key: str) -> str:
    value = fields[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f"`{key}` is no text, or empty")
    return value


SOUNDS: Mapping[str, str] = {
    "mpeg": "mp3",
    "x-wav": "wav",
    "wave": "wav",
    "vnd.wave": "wav",
}
"""What OpenAI calls a sound's format, where its media type says otherwise."""

_READERS = {"image_url": _image, "input_audio": _sound, "file": _file}
