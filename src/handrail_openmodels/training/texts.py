"""Calls, reasoning and images as texts, as training sets spell them."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handrail.calls import Media, ToolCall, ToolResult, arguments_text
from handrail.core.history import as_history
from handrail.dialects.parts import Attachment, parse_attachment
from handrail.errors import ConfigError, Json
from handrail.messages import UserMessage
from handrail.parsing import jsontext
from handrail_openmodels.training.examples import Example, Function, Unwritable

IMAGE = "<image>"
"""The mark for an image in a text."""

_THINK = ("<think>\n", "\n</think>\n\n")


def dump(value: Json) -> str:
    """Return JSON as one line of text, in which no letter of any language is escaped."""
    return json.dumps(value, ensure_ascii=False)


def load(text: str, what: str) -> Json:
    """Return the JSON of a text in a row.

    Raises:
        ConfigError: The text is no JSON.
    """
    try:
        return jsontext.loads(text)
    except jsontext.NotJson as error:
        raise ConfigError(f"{what} is no JSON: {error}") from error


def load_arguments(call: ToolCall) -> dict[str, Json]:
    """Return a call's arguments as an object; text that is no object becomes one member, see `as_history`."""
    arguments: dict[str, Json] = jsontext.loads(as_history(call.arguments))
    return arguments


def call_object(call: ToolCall) -> dict[str, Json]:
    """Return a call as an object with `name` and `arguments`."""
    return {"name": call.name, "arguments": load_arguments(call)}


def read_call_object(value: Json) -> tuple[str, str]:
    """Return the name and the arguments of a call.

    Raises:
        ConfigError: The value is no call.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise ConfigError(f"a call has `name` and `arguments`, not {dump(value)[:100]}")
    return value["name"], arguments_text(value.get("arguments"))


def think(reasoning: str) -> str:
    """Return reasoning as it is written before an answer; empty for none."""
    return reasoning.join(_THINK) if reasoning else ""


def split_thought(text: str) -> tuple[str, str]:
    """Return the reasoning before an answer, and the answer."""
    opening, closing = _THINK
    if not text.startswith(opening) or closing not in text:
        return "", text
    reasoning, _, rest = text.removeprefix(opening).partition(closing)
    return reasoning, rest


def read_functions(tools: Json) -> tuple[Function, ...]:
    """Return the tools of a row: a list, or its JSON text, of functions, wrapped or not."""
    if isinstance(tools, str):
        tools = load(tools, "`tools`") if tools.strip() else []
    return tuple(each.get("function", each) for each in tools or ())


def wrap_functions(functions: Sequence[Function]) -> list[Json]:
    """Return tools as the chat form describes them."""
    return [{"type": "function", "function": dict(each)} for each in functions]


# ---------------------------------------------------------------------- images


def find_user_images(message: UserMessage) -> list[Attachment]:
    """Return the images of a user's message.

    Raises:
        Unwritable: It has an attachment that is no image.
    """
    found = [parse_attachment(part) for part in message.parts]
    return list(_images(each for each in found if each is not None))


def find_result_images(result: ToolResult) -> list[Attachment]:
    """Return the images of a result.

    Raises:
        Unwritable: It has an attachment that is no image.
    """
    found = [parse_attachment(each) for each in result.media]
    return list(_images(each for each in found if each is not None))


def _images(attachments: Iterator[Attachment]) -> Iterator[Attachment]:
    for each in attachments:
        if not each.media_type.startswith("image/"):
            raise Unwritable(f"it shows {each.media_type or 'a file'}")
        if each.file_id:
            raise Unwritable("it shows a file that only the provider has")
        yield each


def forbid_images(example: Example) -> None:
    """Check that an example is only text.

    Raises:
        Unwritable: It has an image or another attachment.
    """
    for message in example.messages:
        if isinstance(message, UserMessage) and find_user_images(message):
            raise Unwritable("it shows images")
    if any(find_result_images(result) for result in example.results):
        raise Unwritable("it shows images")


class ImagePlaces:
    """Writes a mark into a text for each of its images, and collects the images.

    A mark that was in the text before is changed, since a trainer counts marks and images.
    """

    def __init__(self) -> None:
        self.links: list[str] = []

    def place(self, text: str, images: Sequence[Attachment]) -> str:
        """Return a text with a mark for each of its images."""
        self.links += [each.link for each in images]
        if images and text.count(IMAGE) == len(images):
            return text
        return IMAGE * len(images) + text.replace(IMAGE, "< image>")

    def column(self) -> dict[str, Json]:
        """Return the column of the images, if there are any."""
        return {"images": list(self.links)} if self.links else {}


class ImageReader:
    """Gives each text in a row the images for its marks."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._links = iter(row.get("images") or ())

    def user(self, text: str) -> UserMessage:
        """Return a person's message."""
        images = self._next(text)
        if not images:
            return UserMessage(text)
        rest = text.replace(IMAGE, "")
        parts: list[Mapping[str, Json] | Media] = [*images]
        if rest:
            parts.append({"type": "text", "text": rest})
        return UserMessage(text, tuple(parts))

    def media(self, text: str) -> tuple[Media, ...]:
        """Return the images of a result."""
        return self._next(text)

    def _next(self, text: str) -> tuple[Media, ...]:
        places = range(text.count(IMAGE))
        return tuple(
            read_image(link) for _, link in zip(places, self._links, strict=False)
        )


def read_image(link: str) -> Media:
    """Return an image by its address, its path or its `data:` URL."""
    kind = mimetypes.guess_type(link)[0] or "image/*"
    return Media(kind, url=link)
