"""Content of the Model Context Protocol, to and from what a tool returns here: text, `Media`, lists of them.

A server's content is read as it is and never fetched: a link stays an address. A kind that this version does not know
becomes a sentence that says so, because the rest of the result may still be what the model needs.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from mcp import types

from handrail.calls import Media

FILE_URI = "handrail://media/"
"""Begins the address of a file that has none: the protocol requires an address for embedded resources."""

BINARY = "application/octet-stream"


def read_contents(contents: Sequence[types.ContentBlock]) -> Any:
    """Return what a tool would return here: one part alone, several as a list, none as the empty text."""
    parts = [read_content(each) for each in contents]
    if not parts:
        return ""
    return parts[0] if len(parts) == 1 else parts


def read_content(content: types.ContentBlock) -> Any:
    """Return one part: text, `Media`, a link as an object, or a sentence about what cannot be read."""
    match content:
        case types.TextContent(text=text):
            return text
        case types.ImageContent() | types.AudioContent():
            return _read_bytes(content.data, content.mime_type)
        case types.ResourceLink():
            return {
                "link": str(content.uri),
                "name": content.name,
                "description": content.description or "",
            }
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            return _read_bytes(resource.blob, resource.mime_type or BINARY)
    return f"[unsupported content: {getattr(content, 'type', 'of no type')}]"


def _read_bytes(data: str, media_type: str) -> Media | str:
    try:
        return Media(media_type, b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return f"[unreadable content: {media_type} that is not base64]"


def write_content(part: Media | str) -> types.ContentBlock:
    """Return one part of a tool's result as content: text, an image, a sound, or a file as an embedded resource."""
    if isinstance(part, str):
        return types.TextContent(type="text", text=part)
    if part.url and not part.data:
        name = part.name or "file"
        return types.ResourceLink(
            type="resource_link", name=name, uri=part.url, mime_type=part.media_type
        )
    family = part.media_type.partition("/")[0]
    if family == "image":
        return types.ImageContent(
            type="image", data=part.base64, mime_type=part.media_type
        )
    if family == "audio":
        return types.AudioContent(
            type="audio", data=part.base64, mime_type=part.media_type
        )
    return types.EmbeddedResource(type="resource", resource=_write_resource(part))


def _write_resource(
    part: Media,
) -> types.TextResourceContents | types.BlobResourceContents:
    """Return a file: as text where its type and its bytes are text."""
    uri = part.url or FILE_URI + (part.name or "file")
    text = _read_text(part)
    if text is not None:
        return types.TextResourceContents(uri=uri, mime_type=part.media_type, text=text)
    return types.BlobResourceContents(
        uri=uri, mime_type=part.media_type, blob=part.base64
    )


def _read_text(part: Media) -> str | None:
    if not part.media_type.startswith(("text/", "application/json")):
        return None
    try:
        return part.data.decode()
    except UnicodeDecodeError:
        return None
