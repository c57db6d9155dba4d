"""Content of the protocol, to and from what a tool returns."""

import pytest
from mcp import types

from handrail.calls import Media
from handrail_mcp.contents import read_contents, write_content


@pytest.mark.parametrize(
    "part",
    [
        "text with a lone \u2028 separator",
        Media("image/png", b"\x89PNG"),
        Media("audio/wav", b"RIFF"),
        Media("application/pdf", b"%PDF"),
        Media("text/plain", b"\xff not UTF-8"),
    ],
    ids=repr,
)
def test_what_is_written_is_read_back(part):
    assert read_contents([write_content(part)]) == part


def test_a_link_is_not_fetched_and_stays_an_address():
    link = write_content(Media("image/png", url="http://169.254.169.254/", name="x"))
    assert read_contents([link])["link"] == "http://169.254.169.254/"


def test_bytes_that_are_none_and_no_content_are_told():
    broken = types.ImageContent(type="image", data="%%", mime_type="image/png")
    assert "not base64" in read_contents([broken])
    assert read_contents([]) == ""
    assert read_contents([broken, types.TextContent(type="text", text="a")])[1] == "a"
