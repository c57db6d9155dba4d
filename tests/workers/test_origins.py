"""Where a tool failed, as the caller reads it."""

from pathlib import Path

import pytest

import handrail
from handrail.workers.worker_main import _describe_origin

PACKAGES = Path(handrail.__file__).parents[1]
FAILING = "def look():\n    int('x y')\n"


def origin_of(file, call):
    """Return where the function of a file failed that `call` calls."""
    scope = {}
    exec(compile(FAILING, str(file), "exec"), scope)
    with pytest.raises(ValueError) as caught:
        call(scope["look"])
    return _describe_origin(caught.value)


def test_it_is_the_last_line_of_the_tools_own_file(tmp_path):
    def tool(look):
        look()

    assert origin_of(tmp_path / "lib.py", tool).startswith("tool (test_origins.py:")


@pytest.mark.parametrize("package", ["handrail", "handrail_more"])
def test_a_file_of_a_package_of_ours_is_no_tools_own(package):
    def tool(look):
        look()

    file = PACKAGES / package / "lib.py"
    assert origin_of(file, tool) == "look (lib.py:2)"
