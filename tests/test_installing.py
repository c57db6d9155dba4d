"""What a message says of an extra that is missing is the command that installs it, here and now."""

import json
import subprocess
import sys

import pytest

ASK = "from handrail.errors import describe_install; print(describe_install('mcp'))"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'handrail[mcp]'"),
        (
            {"url": "file:///tmp/handrail.whl", "archive_info": {}},
            "pip install 'handrail[mcp]'",
        ),
        (
            {"url": "file:///home/anna/hand%20rail", "dir_info": {"editable": True}},
            "pip install -e '/home/anna/hand rail[mcp]'",
        ),
    ],
)
def test_an_extra_is_installed_as_handrail_was(tmp_path, monkeypatch, origin, command):
    known = tmp_path / "handrail-0.1.0.dist-info"
    known.mkdir()
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: handrail\n")
    if origin:
        (known / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{command}\n"
