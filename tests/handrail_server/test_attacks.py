"""What somebody tries who should not get in, or not so far."""

import contextlib
import json
import socket
from urllib.parse import quote

import httpx2
import pytest

import handrail as hr
from handrail.serving.tokens import make_entry
from handrail.stores.memory_runs import FullMemoryStore
from handrail.testing import call
from handrail_server.access import Access, Proxies
from handrail_server.rates import RequestRate
from tests.handrail_server.served import scripted, served_process, serving

ROLES = ("see", "approve", "administer")
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def open_server(tmp_path_factory):
    store = f"sqlite:///{tmp_path_factory.mktemp('open')}/h.db"
    with serving(model=scripted(), store=store) as served:
        yield served


def make_tokens(folder, *more):
    """Write a token for each role, and more; return the file and the tokens by principal."""
    entries = {role: make_entry(role, role=role) for role in ROLES}
    entries |= {name: make_entry(name, scope, role) for name, scope, role in more}
    file = folder / "tokens.toml"
    file.write_text("".join(each.text for each in entries.values()))
    return file, {name: each.token for name, each in entries.items()}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    file, tokens = make_tokens(
        folder, ("anna", "acme", "administer"), ("ben", "other", "administer")
    )
    with serving(
        model=scripted(), store=f"sqlite:///{folder}/h.db", access=Access(file),
        rate=RequestRate(10_000, 10_000),
    ) as served:  # fmt: skip
        served.tokens = tokens
        yield served


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def refused(answer, status, code):
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), (
        answer.text
    )


# ---------------------------------------------------------------------- foreign pages


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil@127.0.0.1", "localhost.", "127.0.0.1.evil.example", "", "[::2]:80", "127.0.0.1:80:80"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/api/v1/runs", "/", "/v1/models"])
def test_a_foreign_host_gets_no_answer(open_server, host, path):
    refused(open_server.client.get(path, headers={"host": host}), 400, "foreign_host")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8321", "[::1]:1"])
def test_this_machine_is_reached_under_its_own_names(open_server, host):
    answer = open_server.client.get("/api/v1/", headers={"host": host})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "file://"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_of_other_sites_get_no_answer(open_server, origin, method):
    answer = open_server.client.request(
        method, "/api/v1/runs", headers={"origin": origin}, json={"question": "x"}
    )
    refused(answer, 403, "foreign_origin")
    assert "access-control-allow-origin" not in answer.headers


def test_our_own_page_and_pages_that_were_permitted_may_send_requests(open_server):
    headers = {"origin": open_server.url}
    assert open_server.client.get("/api/v1/", headers=headers).status_code == 200
    with serving(origins=["https://app.example.com"]) as served:
        headers = {"origin": "https://app.example.com"}
        assert served.client.get("/api/v1/", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)  # fmt: skip
def test_what_a_form_can_send_changes_nothing(open_server, kind):
    answer = open_server.client.post(
        "/api/v1/runs", content=b'{"question": "x"}', headers={"content-type": kind}
    )
    refused(answer, 415, "not_json")


@pytest.mark.parametrize(
    "header", ["host", "origin", "authorization", "content-length"]
)
def test_a_header_that_comes_twice_is_refused(open_server, header):
    host, _, port = open_server.url.removeprefix("http://").partition(":")
    first = {"host": f"{host}:{port}", "content-length": "0"}.get(header, "x")
    lines = [f"host: {host}:{port}"] if header != "host" else []
    lines += [f"{header}: {first}", f"{header}: evil", "connection: close"]
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            ("GET /api/v1/ HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode()
        )
        status = connection.makefile("rb").readline()
    assert b" 400 " in status


def test_every_answer_forbids_frames_foreign_scripts_and_guessed_types(open_server):
    for path in ("/", "/api/v1/", "/api/v1/nothing", "/runs/r_1"):
        headers = open_server.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


# ---------------------------------------------------------------------- scripts


def test_a_script_that_was_stored_or_is_reflected_leaves_as_json_only():
    @hr.tool(effect="destructive")
    def publish(text: str) -> str:
        """Publish a text."""
        return SCRIPT + text

    script = [[call("publish", text=SCRIPT)], SCRIPT]
    with serving(publish, model=scripted(*script)) as served:
        run = served.post("/runs", {"question": SCRIPT}, 201)["id"]
        served.run_until(run, "waiting")
        served.word(served.question(), reason=SCRIPT)
        served.run_until(run, "done")
        paths = [
            "/runs", f"/runs/{run}", f"/runs/{run}/messages", "/approvals?state=all",
            f"/runs/{SCRIPT}", "/runs?q=" + SCRIPT, f"/{SCRIPT}", "/tools", "/ledger",
        ]  # fmt: skip
        for path in paths:
            answer = served.client.get(f"/api/v1{path}")
            assert answer.headers["content-type"] == "application/json", path
            json.loads(answer.text)
        page = served.client.get(f"/{SCRIPT}")
        assert SCRIPT not in page.text
        before = served.get("/")["last_event"]
        served.deployment.hub.publish("mark", run, text=f"{SCRIPT}\n\nevent: forged")
        with served.client.stream("GET", f"/api/v1/events?after={before}") as answer:
            lines = answer.iter_lines()
            heard = [next(lines) for _ in range(6)]
        assert "event: forged" not in heard


# ---------------------------------------------------------------------- tokens and roles


@pytest.mark.parametrize(
    "headers",
    [
        {}, bearer("hr_wrong"), {"authorization": "Bearer"}, {"authorization": "Basic YTpi"}, bearer("\xff\xfe"),
        {"cookie": "handrail_session=guess"}, {"cookie": "handrail_session="}, {"x-forwarded-user": "root"},
    ],
)  # fmt: skip
def test_without_a_valid_token_nothing_is_answered(headers, tmp_path):
    file, _ = make_tokens(tmp_path)
    with serving(access=Access(file)) as served:
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        for path in ("/", "/runs", "/events", "/audit/verify", "/runs/x/export"):
            answer = served.client.get(f"/api/v1{path}", headers=encoded)
            refused(answer, 401, "no_valid_token")
        answer = served.client.post("/v1/chat/completions", json={}, headers=encoded)
        refused(answer, 401, "no_valid_token")
        assert served.client.get("/", headers=encoded).status_code == 200


def test_guessing_tokens_is_slowed_down(tmp_path):
    file, _ = make_tokens(tmp_path)
    with serving(access=Access(file)) as served:
        codes = [
            served.client.get("/api/v1/", headers=bearer(f"guess{n}")).status_code
            for n in range(20)
        ]
        assert codes[0] == 401 and codes[-1] == 429
        codes = [
            served.client.post("/api/v1/session", json={"token": "x"}).status_code
            for n in range(20)
        ]
        assert codes[-1] == 429


def test_a_revoked_token_and_its_session_open_nothing_any_more(tmp_path):
    file, tokens = make_tokens(tmp_path)
    with serving(access=Access(file)) as served:
        headers = bearer(tokens["approve"])
        assert served.client.get("/api/v1/", headers=headers).status_code == 200
        answer = served.client.post(
            "/api/v1/session", json={"token": tokens["approve"]}
        )
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert tokens["approve"] not in cookie
        assert served.get("/")["principal"] == "approve"
        keeping = [
            each for each in file.read_text().split("\n\n") if '"approve"' not in each
        ]
        file.write_text("\n\n".join(keeping))
        refused(served.client.get("/api/v1/"), 401, "no_valid_token")
        refused(served.client.get("/api/v1/", headers=headers), 401, "no_valid_token")
        see = bearer(tokens["see"])
        assert served.client.get("/api/v1/", headers=see).status_code == 200
        file.write_text("[[token]\n")  # with a fault, nobody has access
        refused(served.client.get("/api/v1/", headers=see), 401, "no_valid_token")


def test_a_session_is_found_among_cookies_of_others(tmp_path):
    file, tokens = make_tokens(tmp_path)
    with serving(access=Access(file)) as served:
        served.post("/session", {"token": tokens["see"]}, 201)
        ours = served.client.cookies["handrail_session"]
        served.client.cookies.clear()
        for other in ('theme={"dark": 1, "n": 2}', "flag", "k[]=1", "a=b c", "=1"):
            cookie = {"cookie": f"{other}; handrail_session={ours}"}
            assert served.get("/", headers=cookie)["principal"] == "see", other


def test_a_session_can_be_closed(tmp_path):
    file, tokens = make_tokens(tmp_path)
    with serving(access=Access(file)) as served:
        served.post("/session", {"token": tokens["see"]}, 201)
        assert served.get("/")["role"] == "see"
        cookie = dict(served.client.cookies)
        answer = served.client.request(
            "DELETE", "/api/v1/session", headers={"content-type": "application/json"}
        )
        assert answer.status_code == 200
        served.client.cookies.update(cookie)
        refused(served.client.get("/api/v1/"), 401, "no_valid_token")


NEEDS = [
    ("POST", "/runs", {"question": "x"}, "approve"),
    ("POST", "/runs/x/cancel", {}, "approve"),
    ("POST", "/runs/x/wake", {}, "approve"),
    ("POST", "/runs/x/resume", {}, "approve"),
    ("POST", "/runs/x/fork", {}, "approve"),
    ("POST", "/approvals/x", {"verdict": "approve", "digest": "x"}, "approve"),
    ("POST", "/tools/get_order/call", {}, "approve"),
    ("POST", "/ledger/x", {"outcome": "done"}, "administer"),
    ("POST", "/servers/x/accept", {"digests": {}}, "administer"),
    ("GET", "/runs/x/export", None, "administer"),
]


@pytest.mark.parametrize(("method", "path", "body", "needed"), NEEDS)
def test_a_role_that_is_too_small_does_nothing(guarded, method, path, body, needed):
    for role in ROLES[: ROLES.index(needed)]:
        answer = guarded.client.request(
            method, f"/api/v1{path}", json=body, headers=bearer(guarded.tokens[role])
        )
        refused(answer, 403, "role_too_small")


def test_a_standing_rule_needs_the_largest_role(guarded):
    headers = bearer(guarded.tokens["approve"])
    run = guarded.post("/runs", {"question": "Delete A-1."}, 201, headers=headers)["id"]
    for _ in range(200):
        found = guarded.get("/approvals", headers=headers)["items"]
        if found:
            break
    (question,) = found
    body = {"verdict": "approve", "digest": question["digest"], "scope": "rule"}
    answer = guarded.client.post(
        f"/api/v1/approvals/{question['id']}", json=body, headers=headers
    )
    refused(answer, 403, "role_too_small")
    guarded.post(f"/runs/{run}/cancel", headers=headers)


def test_a_tenant_knows_nothing_of_another(guarded):
    anna, ben = (bearer(guarded.tokens[name]) for name in ("anna", "ben"))
    run = guarded.post("/runs", {"question": "Delete A-1."}, 201, headers=anna)["id"]
    assert run.startswith("@acme/")
    escaped = run.replace("/", "%2F")
    for _ in range(500):
        page = guarded.get(f"/runs/{escaped}", headers=anna)
        if page["run"]["status"] == "waiting":
            break
    (question,) = guarded.get("/approvals", headers=anna)["items"]
    assert guarded.get("/runs", headers=anna)["items"][0]["id"] == run
    for path in (
        "/runs",
        "/approvals?state=all",
        "/ledger",
        "/audit",
        f"/audit?run={escaped}",
    ):
        assert guarded.get(path, headers=ben)["items"] == [], path
    for path in ("", "/messages", "/wire", "/prompt", "/audit", "/export", "/events"):
        answer = guarded.client.get(f"/api/v1/runs/{escaped}{path}", headers=ben)
        refused(answer, 404, "not_found")
    for path in ("cancel", "resume", "fork"):
        answer = guarded.client.post(
            f"/api/v1/runs/{escaped}/{path}", json={}, headers=ben
        )
        refused(answer, 404, "not_found")
    body = {"verdict": "approve", "digest": question["digest"]}
    answer = guarded.client.post(
        f"/api/v1/approvals/{question['id']}", json=body, headers=ben
    )
    refused(answer, 404, "not_found")
    for path in ("/live", "/servers"):
        refused(
            guarded.client.get(f"/api/v1{path}", headers=ben), 403, "of_all_tenants"
        )
    guarded.post(f"/runs/{escaped}/cancel", headers=anna)


NAMES = ("a/b", "a_b")


def test_no_two_people_share_the_calls_that_they_make_by_hand(tmp_path):
    noted = []

    @hr.tool(effect="write")
    def note(text: str) -> str:
        """Note something."""
        noted.append(text)
        return "noted"

    file, tokens = make_tokens(tmp_path, *((name, "", "approve") for name in NAMES))
    with serving(note, access=Access(file)) as served:
        for name in (*NAMES, *NAMES):
            how = {"headers": bearer(tokens[name])}
            served.post("/tools/note/call", {"arguments": {"text": "x"}}, **how)
    assert noted == ["x", "x"]


def test_names_of_runs_with_signs_of_addresses_are_told_apart():
    names = ("a/b", "a%2Fb", "a%252Fb", "a?b#c", "50%", "50%25", "é%41")
    with serving() as served:
        blocking = served.deployment.runtime.blocking
        for name in names:
            blocking.run("Hi.", model=scripted("Hello."), run_id=name)
        for name in names:
            shown = served.get(f"/runs/{quote(name, safe='')}")
            assert shown["run"]["id"] == name


def test_a_person_is_named_by_a_header_only_if_a_named_proxy_says_so(tmp_path):
    file, _ = make_tokens(tmp_path)
    headers = {"x-forwarded-user": "see"}
    far = Proxies.named(["10.0.0.0/8"], "X-Forwarded-User", "administer")
    with serving(access=Access(file, proxies=far)) as served:
        refused(served.client.get("/api/v1/", headers=headers), 401, "no_valid_token")
    near = Proxies.named(["127.0.0.1"], "X-Forwarded-User", "approve")
    with serving(access=Access(file, proxies=near)) as served:
        me = served.get("/", headers=headers)
        assert (me["principal"], me["role"]) == ("see", "see")  # a token names them
        me = served.get("/", headers={"x-forwarded-user": "carla"})
        assert (me["principal"], me["role"]) == ("carla", "approve")
        refused(served.client.get("/api/v1/"), 401, "no_valid_token")
        twice = [("x-forwarded-user", "carla"), ("X-Forwarded-User", "see")]
        answer = served.client.get("/api/v1/", headers=twice)
        refused(answer, 400, "header_twice")


def test_a_person_whom_a_proxy_names_keeps_the_tenant_of_their_token(tmp_path):
    file, _ = make_tokens(tmp_path, ("anna", "acme", "see"))
    near = Proxies.named(["127.0.0.1"], "X-Forwarded-User", "administer")
    with serving(access=Access(file, proxies=near)) as served:
        headers = {"x-forwarded-user": "anna"}
        me = served.get("/", headers=headers)
        assert (me["role"], me["scope"]) == ("see", "acme")
        file.write_text("[[token]\n")  # with a fault nobody knows what she may do
        answer = served.client.get("/api/v1/", headers=headers)
        refused(answer, 401, "no_valid_token")


def test_no_sender_chooses_the_address_that_it_is_judged_by(tmp_path):
    how = ("--identity-header", "X-Forwarded-User", "--identity-role", "administer")
    store = f"sqlite:///{tmp_path}/h.db"
    with served_process(
        "--store", store, "--proxy", "10.9.9.9", *how,
        folder=tmp_path, FORWARDED_ALLOW_IPS="*",
    ) as (served, _):  # fmt: skip
        headers = {"x-forwarded-user": "root", "x-forwarded-for": "10.9.9.9"}
        answer = served.client.get("/api/v1/", headers=headers)
        refused(answer, 401, "no_valid_token")


# ---------------------------------------------------------------------- approvals


def test_an_old_page_cannot_approve_changed_arguments(open_server):
    open_server.post("/runs", {"question": "Delete A-1."}, 201)
    question = open_server.question()
    old = {**question, "digest": "0" * len(question["digest"])}
    answer = open_server.word(old)
    refused(answer, 409, "other_digest")
    assert open_server.question()["state"] == "open"
    for arguments in ({"order_id": 7}, {"order": "A-1"}, {}):
        answer = open_server.word(question, arguments=arguments)
        refused(answer, 422, "not_possible")
    assert open_server.word(question, "deny").status_code == 200
    answer = open_server.word(question)
    refused(answer, 409, "already_answered")
    assert answer.json()["error"]["by"]


# ---------------------------------------------------------------------- paths and bodies


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/assets/../../app.py", "/%2e%2e/%2e%2e/app.py", "/assets/..%2f..%2fapp.py",
        "//etc/passwd",
        "/assets/..%5c..%5capp.py", "/app.py", "/%00.js", "/assets/%252e%252e/app.py", "/api/v1/../../etc/passwd",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_assets(open_server, path):
    host, _, port = open_server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()
        )
        text = connection.makefile("rb").read()
    assert b"root:" not in text and b"Starlette(" not in text
    head, _, body = text.lower().partition(b"\r\n\r\n")
    # a screen of the console, which is behind the `#` of its one page
    is_screen = b"\r\nlocation: ./#/" in head or b"\r\nlocation: ../" in head
    assert b" 404 " in head or is_screen or b"<!doctype html>" in body


@pytest.mark.parametrize(
    "path", ["/api/v1/runs", "/api/v1/session", "/v1/chat/completions"]
)
def test_a_body_of_ten_megabytes_is_refused_whether_or_not_its_size_is_said(
    open_server, path
):
    body = json.dumps({"question": "x" * 10_000_000}).encode()
    headers = {"content-type": "application/json"}

    def pieces():
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    for content in (body, pieces()):
        with contextlib.suppress(httpx2.WriteError, httpx2.RemoteProtocolError):
            answer = open_server.client.post(path, content=content, headers=headers)
            assert answer.status_code in (413, 405), answer.text


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"null", b"[" * 100_000, b'{"question": 1}', b'{"question": "x", "more": 1}', b"\xff", b"{}"]
)  # fmt: skip
def test_a_body_that_does_not_fit_is_refused_in_one_sentence(open_server, body):
    headers = {"content-type": "application/json"}
    answer = open_server.client.post("/api/v1/runs", content=body, headers=headers)
    assert answer.status_code in (400, 422), answer.text
    assert "Traceback" not in answer.text


def test_a_client_that_hangs_up_amid_a_body_is_no_fault_of_the_server(caplog):
    with serving() as served:
        host, _, port = served.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port))) as sender:
            sender.sendall(
                f"POST /api/v1/runs HTTP/1.1\r\nHost: {host}:{port}\r\n"
                "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{".encode()
            )
            served.get("/")  # by then the other request was read
        served.get("/")
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []


class StoreWithFault(FullMemoryStore):
    """A store of somebody's own, with a fault in it."""

    def list_approvals(self, **_):
        raise RuntimeError("the password is hunter2")


def test_a_fault_of_the_server_is_an_answer_as_any_other():
    with serving(store=StoreWithFault()) as served:
        answer = served.client.get("/api/v1/approvals")
        refused(answer, 500, "internal_error")
        assert "hunter2" not in answer.text


def test_a_digest_that_is_no_text_decides_nothing(open_server):
    open_server.post("/runs", {"question": "Delete A-1."}, 201)
    question = open_server.question()
    answer = open_server.client.post(
        f"/api/v1/approvals/{question['id']}",
        content='{"verdict": "approve", "digest": "\\ud800"}',
        headers={"content-type": "application/json"},
    )
    refused(answer, 409, "other_digest")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=99999", "limit=x", "cursor=-1", "limit=" + "9" * 400, "cursor=%00",
     "cursor=" + "0" * 18 + "9" * 5000]
)  # fmt: skip
def test_a_parameter_that_does_not_fit_is_refused(open_server, query):
    answer = open_server.client.get(f"/api/v1/runs?{query}")
    refused(answer, 422, "bad_parameter")


def test_a_model_that_was_not_named_at_the_start_is_not_asked(open_server):
    body = {"question": "x", "model": "openai:x@http://169.254.169.254/v1"}
    answer = open_server.client.post("/api/v1/runs", json=body)
    refused(answer, 422, "unknown_model")


def test_too_many_requests_are_refused_until_time_has_passed():
    now = [0.0]
    with serving(rate=RequestRate(10, 3, now=lambda: now[0])) as served:
        codes = [served.client.get("/api/v1/").status_code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        now[0] = 1.0
        assert served.client.get("/api/v1/").status_code == 200
