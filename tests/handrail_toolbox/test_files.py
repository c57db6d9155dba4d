"""Files: what is read, found and written below the roots, and that nothing outside of them ever is."""

import asyncio
import errno
import os
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

import handrail as hr
from handrail.cli.loading import tools_from
from handrail.testing import ScriptedApprover, ScriptedModel, call
from handrail.testing.checklist import check
from handrail_toolbox import confined
from handrail_toolbox import files as files_module
from handrail_toolbox.confined import BACKUPS, Tree, fold
from handrail_toolbox.decoding import decode
from handrail_toolbox.files import Files

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "secret.txt").write_text(SECRET)
    root = tmp_path / "root"
    (root / "reports").mkdir(parents=True)
    (root / "hello.txt").write_text("one\ntwo 天气\nthree\n", encoding="utf-8")
    (root / "reports/may.md").write_text("# May\nRefunds went up.\n", encoding="utf-8")
    return root


def asked(files, *calls, approver=None):
    """Make calls one after the other; return their results."""

    async def make():
        async with hr.Runtime(files, approver=approver) as runtime:
            return [await runtime.call(tool, arguments) for tool, arguments in calls]

    return asyncio.run(make())


def read(root, path, **more):
    (result,) = asked(Files([root]), ("read_file", {"path": path, **more}))
    return result.value if result.ok else result.failure.code


# ---------------------------------------------------------------------- reading


def test_lines_are_paged(root):
    first = read(root, "hello.txt", max_lines=2)
    assert (first["text"], first["first_line"], first["last_line"], first["lines"]) == (
        "one\ntwo 天气\n",
        1,
        2,
        3,
    )
    assert first["has_more"]
    rest = read(root, "hello.txt", first_line=first["last_line"] + 1)
    assert (rest["text"], rest["has_more"]) == ("three\n", False)


def test_lines_are_counted_as_editors_do(root):
    (root / "odd.txt").write_text("a\u2028b\x0cc\r\nd", encoding="utf-8", newline="")
    (found,) = asked(
        Files([root]), ("search_files", {"text": "d", "pattern": "odd.txt"})
    )
    assert (read(root, "odd.txt")["lines"], found.value["matches"]) == (
        2,
        [{"path": "odd.txt", "line": 2, "text": "d"}],
    )


def test_beyond_the_last_line_there_is_nothing(root):
    assert read(root, "hello.txt", first_line=99)["text"] == ""


@pytest.mark.parametrize(("data", "expected"), [
    ("天气 ok".encode(), ("天气 ok", "utf-8")),
    ("天气".encode("utf-8-sig"), ("天气", "utf-8-sig")),
    ("天气 ok".encode("utf-16"), ("天气 ok", "utf-16")),
    (b"\xfe\xff" + "天气".encode("utf-16-be"), ("天气", "utf-16")),
    ("查询北京的天气，谢谢。".encode("gb18030"), ("查询北京的天气，谢谢。", "gb18030")),
    (b"", ("", "utf-8")),
    (b"\x1b[31mred\x1b[0m\n", ("\x1b[31mred\x1b[0m\n", "utf-8")),
])  # fmt: skip
def test_encodings_are_told_apart(data, expected):
    assert decode(data) == expected


@pytest.mark.parametrize(("data", "why"), [
    (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "is binary"),
    (b"\xff\xfe\x00", "begins like utf-16"),
    (bytes(range(1, 9)) * 4, "is binary"),
    ("élève déjà vu, très bien à l'été".encode("latin-1"), "none of UTF-8, UTF-16 and GB18030"),
])  # fmt: skip
def test_what_is_no_text_is_refused_and_not_guessed(data, why):
    with pytest.raises(ValueError, match=why):
        decode(data)


PRINTED = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff")


@given(st.text(alphabet=PRINTED), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_what_was_written_in_an_encoding_that_says_so_is_read_as_it_was(text, encoding):
    assert decode(text.encode(encoding)) == (text, encoding)


@given(st.binary())
def test_any_bytes_are_text_or_refused(data):
    try:
        text, encoding = decode(data)
    except ValueError:
        return
    assert text.encode(encoding) == data or encoding == "utf-16"


@given(
    st.lists(
        st.sampled_from(
            ["..", ".", "", "a", "up", "out", "~", "deep", "secret.txt", "/", "\\"]
        ),
        max_size=6,
    )
)
def test_no_path_made_of_tricks_leads_out(parts):
    with TemporaryDirectory() as place:
        root = Path(place, "root")
        (root / "a/deep").mkdir(parents=True)
        Path(place, "secret.txt").write_text(SECRET)
        (root / "up").symlink_to("..")
        (root / "a/out").symlink_to("../../secret.txt")
        path = "/".join(parts) or "."
        try:
            assert Files([root])._tree.contents(path, 1000)[0] != SECRET.encode()
        except hr.ToolError:
            pass


def test_a_binary_file_is_refused_in_words(root):
    (root / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    (result,) = asked(Files([root]), ("read_file", {"path": "cat.png"}))
    assert (result.failure.code, result.failure.message) == (
        "NOT_TEXT",
        "`cat.png` is binary (16 bytes).",
    )


def test_a_file_above_the_limit_is_refused(root):
    (root / "long.txt").write_text("x" * 101)
    (result,) = asked(
        Files([root], most_bytes=100), ("read_file", {"path": "long.txt"})
    )
    assert result.failure.code == "FILE_TOO_LARGE"


# ---------------------------------------------------------------------- what cannot be left


@pytest.mark.parametrize("path", [
    "../secret.txt", "reports/../../secret.txt", "/etc/passwd", "~/x", "reports\\..\\..\\secret.txt", "C:/x",
    "hello.txt\x00.md", "./../secret.txt", "/proc/self/root/etc/passwd",
])  # fmt: skip
def test_a_path_that_leaves_is_refused_before_the_tool(root, path):
    assert read(root, path) == "INVALID_ARGUMENTS"


@pytest.mark.parametrize(("link", "target", "path"), [
    ("out", "../secret.txt", "out"),                 # the last component
    ("up", "..", "up/secret.txt"),                   # a folder on the way
    ("abs", "/etc", "abs/passwd"),
    # inside too: a link may be turned any time
    ("inside", "hello.txt", "inside"),
    ("loop", "loop", "loop"),
    ("self", "/proc/self", "self/environ"),
])  # fmt: skip
def test_no_link_is_followed(root, link, target, path):
    (root / link).symlink_to(target)
    assert read(root, path) in ("NOT_PERMITTED", "NOT_A_FOLDER")


def test_a_root_may_be_named_by_a_link(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    assert read(tmp_path / "alias", "hello.txt")["lines"] == 3


def test_a_pipe_does_not_hang_and_a_socket_and_a_folder_are_no_files(root, monkeypatch):
    os.mkfifo(root / "pipe")
    monkeypatch.chdir(root)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        assert [read(root, path) for path in ("pipe", "sock", "reports")] == [
            "NOT_A_FILE"
        ] * 3


def test_what_the_kernel_makes_up_is_not_read_although_a_root_holds_it():
    assert read(Path("/"), "proc/1/environ") == "NOT_PERMITTED"
    assert read(Path("/"), "dev/null") == "NOT_PERMITTED"


@pytest.mark.parametrize(
    "spelled",
    [
        ".env",
        ".ENV",
        ".Env",
        "．env",
        ".e\u200dnv",
        ".env.",
        ".env ",
        ".env.local",
        "a.PEM",
    ],
)
def test_a_denied_name_is_denied_in_every_spelling(root, spelled):
    (root / spelled).write_text("KEY=1")
    assert read(root, spelled) == "NOT_PERMITTED"
    listed, found = asked(
        Files([root]), ("list_files", {}), ("search_files", {"text": "KEY"})
    )
    assert spelled not in [entry["path"] for entry in listed.value["entries"]]
    assert found.value["matches"] == []


def test_a_denied_folder_denies_what_is_in_it(root):
    (root / ".GIT").mkdir()
    (root / ".GIT/config").write_text("x")
    assert read(root, ".GIT/config") == "NOT_PERMITTED"


def test_folding_leaves_other_names_apart():
    assert len({fold(name) for name in ("a.md", "b.md", "天气.md", "天氣.md")}) == 4


@pytest.mark.slow
def test_a_link_that_is_swapped_in_while_reading_never_leaks(root):
    """A thread turns a file and a folder into links to the outside and back, as fast as it can."""
    (root / "a").mkdir()
    (root / "a/secret.txt").write_text("harmless")
    (root / "file.txt").write_text("harmless")
    stop, seen = Event(), set()

    def swap():
        while not stop.is_set():
            for name, target in (("file.txt", "../secret.txt"), ("a", "..")):
                (root / name).rename(root / f"{name}.aside")
                (root / name).symlink_to(target)
                (root / name).unlink()
                (root / f"{name}.aside").rename(root / name)

    swapping = Thread(target=swap)
    swapping.start()
    try:
        tree = Files([root])._tree
        for _ in range(1500):
            for path in ("file.txt", "a/secret.txt"):
                try:
                    seen.add(tree.contents(path, 1000)[0])
                except hr.ToolError as error:
                    seen.add(error.failure.code)
    finally:
        stop.set()
        swapping.join()
    assert SECRET.encode() not in seen
    assert b"harmless" in seen


@pytest.mark.parametrize(("swapped_in", "code"), [
    (lambda path: path.symlink_to("../secret.txt"), "NOT_PERMITTED"),
    (os.mkfifo, "NOT_A_FILE"),
], ids=["link", "pipe"])  # fmt: skip
def test_what_is_swapped_in_between_the_look_and_the_opening_is_refused(
    root, monkeypatch, swapped_in, code
):
    look, path = os.stat, root / "hello.txt"

    def looked(name, **how):
        found = look(name, **how)
        if name == "hello.txt":
            path.unlink()
            swapped_in(path)
        return found

    monkeypatch.setattr(os, "stat", looked)
    with pytest.raises(hr.ToolError) as refused:
        Files([root])._tree.contents("hello.txt", 1000)
    assert refused.value.failure.code == code


def test_a_path_that_is_not_there_says_what_to_do(root):
    (result,) = asked(Files([root]), ("read_file", {"path": "reports/june.md"}))
    assert (result.failure.code, result.failure.message) == (
        "FILE_NOT_FOUND",
        "There is no `reports/june.md`.",
    )
    assert "list_files" in result.failure.suggestion


@pytest.mark.parametrize(("asked_for", "meant"), [
    ("helo.txt", "hello.txt"), ("reports/mai.md", "reports/may.md"), ("report/may.md", "reports"),
])  # fmt: skip
def test_a_misspelt_path_is_answered_with_the_nearest(root, asked_for, meant):
    (result,) = asked(Files([root]), ("read_file", {"path": asked_for}))
    assert f"`{meant}`" in result.failure.suggestion
    (several,) = asked(
        Files({"a": root, "b": root}), ("read_file", {"path": f"b/{asked_for}"})
    )
    assert f"`b/{meant}`" in several.failure.suggestion


def test_the_nearest_is_never_a_denied_name(root):
    (root / "hello.pem").touch()
    (result,) = asked(Files([root]), ("read_file", {"path": "hello.pen"}))
    assert "pem" not in result.failure.suggestion


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "~/notes.md", "C:\\notes.md", "../up.md"]
)
def test_a_path_that_leads_out_is_refused_in_words_and_not_by_a_pattern(root, path):
    (result,) = asked(Files([root]), ("read_file", {"path": path}))
    assert "below its folder" in result.failure.message
    assert "^" not in result.failure.message + result.failure.suggestion


# ---------------------------------------------------------------------- several roots


def test_several_roots_are_folders_of_one_tree(root, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.txt").write_text("remember the refund")
    files = Files([root, tmp_path / "notes"])
    top, note, unknown, found, deep = asked(
        files, ("list_files", {}), ("read_file", {"path": "notes/a.txt"}), ("read_file", {"path": "note/a.txt"}),
        ("search_files", {"text": "REFUND"}), ("list_files", {"recursive": True, "pattern": "*.txt"}),
    )  # fmt: skip
    assert [entry["path"] for entry in top.value["entries"]] == ["root", "notes"]
    assert note.value["text"] == "remember the refund"
    assert "`notes`" in unknown.failure.suggestion
    assert [match["path"] for match in found.value["matches"]] == [
        "root/reports/may.md",
        "notes/a.txt",
    ]
    assert [entry["path"] for entry in deep.value["entries"]] == [
        "root/hello.txt",
        "notes/a.txt",
    ]


@pytest.mark.parametrize(("roots", "told"), [
    ([], "takes a list"), ("reports", "takes a list"), (["/nowhere"], "no folder"), (["/tmp", "/tmp/"], "two roots"),
])  # fmt: skip
def test_roots_that_cannot_be_used_are_said_when_the_tools_are_made(roots, told):
    with pytest.raises(hr.ConfigError, match=told):
        Files(roots)


# ---------------------------------------------------------------------- listing and searching


def test_a_folder_is_listed_with_kinds_and_sizes(root):
    (root / "link").symlink_to("hello.txt")
    (listed,) = asked(Files([root]), ("list_files", {}))
    assert listed.value["entries"] == [
        {"path": "hello.txt", "kind": "file", "bytes": 21},
        {"path": "link", "kind": "link", "bytes": 0},
        {"path": "reports", "kind": "folder", "bytes": 0},
    ]


def test_a_search_without_a_match_is_a_success_with_a_note(root):
    (found,) = asked(Files([root]), ("search_files", {"text": "xyzzy"}))
    assert (found.ok, found.value["matches"]) == (True, [])
    assert "shorter" in found.value["note"]


def test_a_long_listing_says_that_there_is_more(root):
    for number in range(600):
        (root / f"{number}.txt").touch()
    (listed,) = asked(Files([root]), ("list_files", {"pattern": "*.txt"}))
    assert (len(listed.value["entries"]), listed.value["has_more"]) == (500, True)


def test_a_file_that_goes_while_its_folder_is_listed_is_left_out(root, monkeypatch):
    shows = Tree.shows

    def removing(tree, name):
        if name == "hello.txt":
            (root / name).unlink(missing_ok=True)
        return shows(tree, name)

    monkeypatch.setattr(Tree, "shows", removing)
    (listed,) = asked(Files([root]), ("list_files", {}))
    assert [entry["path"] for entry in listed.value["entries"]] == ["reports"]


def test_lines_are_found_in_any_case_and_encoding(root):
    (root / "old.txt").write_bytes("第一行\n退款说明\n".encode("gb18030"))
    (root / "cat.png").write_bytes(b"\0\1")
    chinese, english = asked(
        Files([root]),
        ("search_files", {"text": "退款"}),
        ("search_files", {"text": "refunds", "pattern": "*.md"}),
    )
    assert chinese.value["matches"] == [
        {"path": "old.txt", "line": 2, "text": "退款说明"}
    ]
    assert (chinese.value["files_searched"], chinese.value["unread"]) == (3, 1)
    assert [match["path"] for match in english.value["matches"]] == ["reports/may.md"]


def test_a_pattern_that_would_take_for_ever_elsewhere_ends_at_once(root):
    (root / "evil.txt").write_text("a" * 5000 + "!")
    found, literal, *bad = asked(
        Files([root]), *(("search_files", {"text": pattern, "is_regex": True}) for pattern in (
            "^(a+)+$", "t[wh]", "(", r"(a*)*\1b", "(?=a)", "((a{1000}){1000}){1000}",
        ))
    )  # fmt: skip
    assert found.value["matches"] == []
    assert [match["line"] for match in literal.value["matches"]] == [2, 3]
    assert [each.failure.code for each in bad] == ["BAD_PATTERN"] * 4


def test_a_search_that_is_given_up_ends_and_says_that_there_is_more(root):
    files, given_up = Files([root]), Event()
    given_up.set()
    context = hr.Context(None, "r", "c", "search_files", 1, 0.0, given_up)
    assert files.search_files("one", context)["has_more"]


def test_a_search_that_is_given_up_in_the_middle_of_a_file_ends_there(
    root, monkeypatch
):
    (root / "long.txt").write_text("one\n" * 10)
    given_up, looked_at = Event(), []

    def fits(line):
        looked_at.append(line)
        given_up.set()
        return True

    monkeypatch.setattr(files_module, "_matcher", lambda *_: fits)
    context = hr.Context(None, "r", "c", "search_files", 1, 0.0, given_up)
    found = Files([root]).search_files("one", context, pattern="long.txt")
    assert (len(looked_at), found["has_more"]) == (1, True)


# ---------------------------------------------------------------------- writing


def written(root, *calls):
    return asked(Files([root], writing=True), *calls, approver=lambda _: True)


def test_a_new_file_is_written_with_its_folders(root):
    (result,) = written(
        root, ("write_file", {"path": "new/deep/a.txt", "text": "天气\n"})
    )
    assert (root / "new/deep/a.txt").read_text(encoding="utf-8") == "天气\n"
    assert (result.value["bytes"], result.value["kept"]) == (7, "")


def test_a_person_is_asked_before_a_write(root):
    approver = ScriptedApprover([False])
    (result,) = asked(
        Files([root], writing=True), ("write_file", {"path": "a.txt", "text": "x"}), approver=approver
    )  # fmt: skip
    assert (result.failure.code, approver.asked[0].arguments["path"]) == (
        "NOT_APPROVED",
        "a.txt",
    )
    assert not (root / "a.txt").exists()


def test_without_writing_there_is_no_tool_that_writes(root):
    assert [tool.name for tool in Files([root])] == [
        "read_file",
        "list_files",
        "search_files",
    ]


def test_a_file_is_replaced_only_in_the_version_that_was_read(root):
    version = read(root, "hello.txt")["version"]
    blind, done, stale = written(
        root, ("write_file", {"path": "hello.txt", "text": "new"}),
        ("write_file", {"path": "hello.txt", "text": "new", "version": version}),
        ("write_file", {"path": "hello.txt", "text": "newer", "version": version}),
    )  # fmt: skip
    assert [blind.failure.code, done.ok, stale.failure.code] == [
        "FILE_EXISTS",
        True,
        "VERSION_CHANGED",
    ]
    assert (root / "hello.txt").read_text() == "new"
    assert done.value["version"] == read(root, "hello.txt")["version"]


def test_while_one_writes_another_with_the_same_version_waits(root, monkeypatch):
    """Both have seen what is there; without a lock the second would replace what the first has just written."""
    files, context = (
        Files([root], writing=True),
        hr.Context(None, "r", "c", "write_file", 1, 0.0, Event()),
    )
    version, sync, met = read(root, "hello.txt")["version"], os.fsync, []

    def meanwhile(descriptor):
        if not met:
            met.append(True)
            with pytest.raises(hr.NoEffect) as refused:
                files.write_file("hello.txt", "second", context, version)
            met.append(refused.value.failure)
        sync(descriptor)

    monkeypatch.setattr(confined, "LOCK_S", 0.05)
    monkeypatch.setattr(os, "fsync", meanwhile)
    files.write_file("hello.txt", "first", context, version)
    assert (root / "hello.txt").read_text() == "first"
    assert (met[1].code, met[1].retryable) == ("UNAVAILABLE", True)


def test_undoing_what_is_no_longer_kept_says_so(root):
    replace = {
        "path": "hello.txt",
        "text": "x",
        "version": read(root, "hello.txt")["version"],
    }
    files = Files([root], writing=True)
    (replaced,) = asked(files, ("write_file", replace), approver=lambda _: True)
    (root / BACKUPS / replaced.value["kept"]).unlink()
    with pytest.raises(hr.NoEffect, match="no longer kept"):
        files.restore(**replace, result=replaced.value)


def test_the_same_text_at_another_time_is_another_version(root):
    before = read(root, "hello.txt")["version"]
    os.utime(root / "hello.txt", ns=(1, 1))
    assert read(root, "hello.txt")["version"] != before


def test_a_replaced_file_keeps_its_encoding_and_its_mode(root):
    (root / "old.txt").write_bytes("退款说明，第一版。".encode("gb18030"))
    (root / "old.txt").chmod(0o640)
    version = read(root, "old.txt")["version"]
    (result,) = written(
        root,
        (
            "write_file",
            {"path": "old.txt", "text": "退款说明，第二版。", "version": version},
        ),
    )
    assert (root / "old.txt").read_bytes() == "退款说明，第二版。".encode("gb18030")
    assert ((root / "old.txt").stat().st_mode & 0o777, result.value["encoding"]) == (
        0o640,
        "gb18030",
    )


def test_a_link_is_not_written_through(root, tmp_path):
    (root / "out").symlink_to("../secret.txt")
    (root / "up").symlink_to("..")
    through, new = written(
        root,
        ("write_file", {"path": "out", "text": "x"}),
        ("write_file", {"path": "up/new.txt", "text": "x"}),
    )
    assert (through.failure.code, new.failure.code) == ("FILE_EXISTS", "NOT_A_FOLDER")
    assert (tmp_path / "secret.txt").read_text() == SECRET
    assert not (tmp_path / "new.txt").exists()


def test_a_full_disk_is_told_as_what_it_is_and_nothing_happened(root, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    version = read(root, "hello.txt")["version"]
    monkeypatch.setattr(os, "fsync", full)
    (result,) = written(
        root, ("write_file", {"path": "hello.txt", "text": "new", "version": version})
    )
    assert result.failure.code == "DISK_FULL"
    assert read(root, "hello.txt")["version"] == version


def test_nothing_is_left_lying_about_when_a_write_is_refused(root):
    written(root, ("write_file", {"path": "hello.txt", "text": "x"}))
    assert not [*root.glob(f"{BACKUPS}*")]


def test_the_folder_of_what_was_kept_is_not_for_the_model(root):
    version = read(root, "hello.txt")["version"]
    (result,) = written(
        root, ("write_file", {"path": "hello.txt", "text": "x", "version": version})
    )
    assert read(root, f"{BACKUPS}/{result.value['kept']}") == "NOT_PERMITTED"
    (listed,) = asked(Files([root]), ("list_files", {"recursive": True}))
    assert not [entry for entry in listed.value["entries"] if BACKUPS in entry["path"]]


def test_undoing_brings_back_what_was_there(root):
    before = read(root, "hello.txt")
    replace = {"path": "hello.txt", "text": "x", "version": before["version"]}
    create = {"path": "new.txt", "text": "y"}
    files = Files([root], writing=True)
    replaced, created = asked(
        files, ("write_file", replace), ("write_file", create), approver=lambda _: True
    )
    files.restore(**replace, result=replaced.value)
    files.restore(**create, result=created.value)
    assert read(root, "hello.txt") == before
    assert not (root / "new.txt").exists()


def test_a_run_that_wrote_can_be_undone_by_a_person(root, tmp_path):
    before = read(root, "hello.txt")
    replace = {"path": "hello.txt", "text": "x", "version": before["version"]}
    model = ScriptedModel(
        [
            call("write_file", **replace),
            call("write_file", path="new.txt", text="y"),
            "Written.",
        ]
    )

    async def story():
        files = Files([root], writing=True, approve=False)
        async with hr.Runtime(files, store=f"sqlite:///{tmp_path}/r.db") as runtime:
            run = await runtime.run("Write.", model=model)
            assert (root / "hello.txt").read_text() == "x"
            return await runtime.undo(run.id)

    undone = asyncio.run(story())
    assert all(result.ok for result in undone)
    assert read(root, "hello.txt") == before
    assert not (root / "new.txt").exists()


def test_a_write_whose_answer_was_lost_can_be_undone_too(root):
    """What was verified knows where the old file is kept, or undoing it would remove the file."""
    before = read(root, "hello.txt")
    replace = {"path": "hello.txt", "text": "x", "version": before["version"]}
    files = Files([root], writing=True)
    (replaced,) = asked(files, ("write_file", replace), approver=lambda _: True)
    found = files.was_written(replace, None)
    assert found.value == replaced.value
    files.restore(**replace, result=found.value)
    assert read(root, "hello.txt") == before


def test_undoing_leaves_alone_what_somebody_has_changed_since(root):
    files = Files([root], writing=True)
    (created,) = asked(
        files, ("write_file", {"path": "a.txt", "text": "y"}), approver=lambda _: True
    )
    (root / "a.txt").write_text("mine now")
    with pytest.raises(hr.NoEffect, match="changed it since"):
        files.restore("a.txt", text="y", result=created.value)
    assert (root / "a.txt").read_text() == "mine now"


@pytest.mark.parametrize(("there", "arguments", "expected"), [
    (None, {"text": "x"}, hr.NotFound),
    ("x", {"text": "x"}, hr.Found),
    ("other", {"text": "x"}, hr.Unknown),
    ("other", {"text": "x", "version": "there"}, hr.NotFound),
    (None, {"text": "x", "version": "0" * 16}, hr.Unknown),
])  # fmt: skip
def test_a_lost_answer_is_looked_up(root, there, arguments, expected):
    files = Files([root], writing=True)
    if there is not None:
        (root / "a.txt").write_text(there)
    if arguments.get("version") == "there":
        arguments = arguments | {"version": read(root, "a.txt")["version"]}
    assert isinstance(files.was_written({"path": "a.txt", **arguments}, None), expected)


@pytest.mark.proof
def test_a_file_is_written_once_whatever_dies(crash, root):
    """Each replacement keeps the file that it replaces: those are counted."""
    files = Files([root], writing=True, approve=False)
    arguments = {
        "path": "hello.txt",
        "text": "new",
        "version": read(root, "hello.txt")["version"],
    }

    crash(
        files["write_file"],
        arguments,
        effects=lambda: len([*(root / BACKUPS).glob("*")]),
    )


# ---------------------------------------------------------------------- what is declared


def test_lint_and_check_find_nothing(root):
    files = Files([root], writing=True)
    assert hr.lint(files).findings == []
    assert check(files).missing == []


def test_the_tools_of_the_example_can_be_loaded_and_pass():
    tools = tools_from([str(Path(__file__).parents[2] / "examples/toolbox/desk.py")])
    assert {
        "read_file",
        "write_file",
        "search_documents",
        "send_email",
        "run_python",
    } <= {tool.name for tool in tools}
    assert (hr.lint(tools).findings, check(tools).missing) == ([], [])
