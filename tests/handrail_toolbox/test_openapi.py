"""The operations of an HTTP service as tools: what goes in arrives at the server exactly, and nothing else does."""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import handrail as hr
from handrail.errors import Code, ConfigError, describe_install
from handrail.schemas.openapi import LeftOut, operations

TEXT = {"type": "string"}
AB = {"properties": {"a": {}, "b": {}}}


class Server:
    """A real HTTP server that keeps what it got, and answers as it is told."""

    def __init__(self):
        self.got, self.answers = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                size = int(self.headers.get("content-length") or 0)
                outer.got.append(
                    (self.command, self.path, self.headers, self.rfile.read(size))
                )
                status, headers, body = (
                    outer.answers.pop(0)
                    if outer.answers
                    else (200, {}, b'{"ok": true}')
                )
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in {
                    "content-type": "application/json",
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = answer

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        threading.Thread(
            target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def will(self, status, body=b"", **headers):
        """Answer the next request so; status 0 hangs up."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append(
            (
                status,
                told,
                body if isinstance(body, bytes) else json.dumps(body).encode(),
            )
        )

    @property
    def last(self):
        return self.got[-1]


@pytest.fixture(scope="module")
def running():
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def server(running):
    running.got.clear()
    running.answers.clear()
    return running


def document(
    path="/things", method="post", components=None, version="3.1.0", **operation
):
    """A document of one operation."""
    told = {"operationId": "act", "summary": "Act.", **operation}
    return {
        "openapi": version,
        "info": {},
        "paths": {path: {method: told}},
        "components": components or {},
    }


def param(name, where, schema=TEXT, **how):
    return {
        "name": name,
        "in": where,
        "schema": schema,
        **({"required": True} if where == "path" else {}),
        **how,
    }


def body(schema, kind="application/json"):
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema}}}}


def fields(**schemas):
    return body({"type": "object", "properties": schemas})


FAST = hr.Backoff(0, 0)


def of_two_servers(first, other, **operation):
    """A document whose only operation names a server of its own, and needs a key."""
    schemes = {
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    }
    told = document(
        components=schemes,
        servers=[{"url": other}],
        security=[{"key": []}],
        **operation,
    )
    return {**told, "servers": [{"url": first}]}


@pytest.mark.parametrize("first", [
    "https://shop.example", "http://localhost", "http://127.0.0.1:1", "https://127.0.0.1:{port}",
])  # fmt: skip
def test_a_credential_goes_to_no_origin_but_that_of_the_document_s_first_server(
    server, first
):
    spec = of_two_servers(first.format(port=urlsplit(server.url).port), server.url)
    with pytest.raises(ConfigError, match="auth_origins"):
        hr.openapi(spec, auth={"key": "secret-of-the-shop"})
    assert called(hr.openapi(spec), server).failure.code == "NOT_AUTHENTICATED"
    assert server.got == []


@pytest.mark.parametrize(
    "how", ["the same origin", "another that is listed", "the engineer's address"]
)
def test_a_credential_goes_where_it_may(server, how):
    origin = server.url.removesuffix("/v1")
    first = f"{origin}/v2" if how == "the same origin" else "https://shop.example"
    listed = {"auth_origins": [f"{origin}/"]} if how == "another that is listed" else {}
    fixed = {"base_url": server.url} if how == "the engineer's address" else {}
    tools = hr.openapi(
        of_two_servers(first, server.url),
        auth={"key": "secret-of-the-shop"},
        **listed,
        **fixed,
    )
    assert called(tools, server).ok
    assert server.last[2]["X-Key"] == "secret-of-the-shop"


def test_the_repr_of_a_service_and_its_parts_shows_no_credential():
    spec = of_two_servers("https://shop.example", "https://shop.example/v2")
    service = hr.openapi(spec, auth={"key": "secret-of-the-shop"})
    assert "secret-of" not in repr((service, *service, [tool.wire for tool in service]))


def test_an_operation_that_needs_no_credential_may_have_a_server_of_its_own(server):
    spec = of_two_servers("https://shop.example", server.url)
    spec["paths"]["/things"]["post"]["security"] = []
    assert called(hr.openapi(spec, auth={"key": "secret-of-the-shop"}), server).ok
    assert "X-Key" not in server.last[2]


def called(spec, server, arguments=None, tool="act", **how):
    """Call one operation of a document at the server."""
    tools = (
        spec
        if isinstance(spec, hr.Toolset)
        else hr.openapi(spec, base_url=server.url, **how)
    )
    with hr.SyncRuntime(
        tools, backoff=FAST, policy=hr.Policy(ask_from=None)
    ) as runtime:
        return runtime.call(tool, arguments or {})


ORDER = {
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}
}
SHOP = {
    "openapi": "3.0.3",
    "info": {"title": "Shop"},
    "servers": [
        {
            "url": "https://{zone}.shop.example/v1",
            "variables": {"zone": {"default": "eu"}},
        }
    ],
    "security": [{"key": []}, {"token": []}],
    "paths": {
        "/orders/{order_id}": {
            "parameters": [{"$ref": "#/components/parameters/OrderId"}],
            "get": {
                "operationId": "getOrder",
                "summary": "Get an order.",
                "parameters": [param("api_key", "query")],
            },
            "delete": {"operationId": "deleteOrder", "summary": "Delete an order."},
            "put": {
                "operationId": "orders/replace",
                "summary": "Replace an order.",
                "requestBody": ORDER,
                "responses": {"200": ORDER},
            },
        },
        "/orders": {
            "post": {
                "summary": "Place an order.",
                "requestBody": ORDER,
            }
        },
    },
    "components": {
        "parameters": {
            "OrderId": param("order_id", "path", description="Such as A-1.")
        },
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "query", "name": "api_key"},
            "token": {"type": "http", "scheme": "bearer"},
        },
        "schemas": {
            "Order": {
                "type": "object",
                "required": ["lines"],
                "properties": {
                    "id": {"type": "string", "readOnly": True},
                    "lines": {
                        "type": "array",
                        "items": {"$ref": "#/components/schemas/Line"},
                    },
                    "note": {"type": "string", "nullable": True},
                },
            },
            "Line": {
                "type": "object",
                "properties": {
                    "sku": TEXT,
                    "parts": {
                        "type": "array",
                        "items": {"$ref": "#/components/schemas/Line"},
                    },
                },
            },
        },
    },
}


# ---------------------------------------------------------------------- what a model is told


def test_operations_are_tools_by_their_methods():
    tools = hr.openapi(SHOP)
    assert {tool.name: (tool.effect, tool.replay) for tool in tools} == {
        "getOrder": ("read", None),
        "deleteOrder": ("destructive", None),
        "orders_replace": ("write", "key"),
        "post_orders": ("write", None),
    }
    assert tools["getOrder"].description == "Get an order."


def test_arguments_are_one_flat_object_without_credentials_or_what_only_the_service_writes():
    tools = hr.openapi(SHOP)
    assert tools["getOrder"].parameters["properties"] == {
        "order_id": {**TEXT, "description": "Such as A-1."}
    }
    replace = tools["orders_replace"].parameters
    assert (set(replace["properties"]), replace["required"]) == (
        {"order_id", "lines", "note"},
        ["order_id", "lines"],
    )
    assert replace["properties"]["note"] == {"type": ["string", "null"]}


def test_a_header_of_an_operation_stands_in_place_of_the_path_s_in_whatever_case(
    server,
):
    spec = document(parameters=[param("x-tenant", "header", {"enum": ["a"]})])
    spec["paths"]["/things"]["parameters"] = [
        param("X-Tenant", "header"),
        param("X-Page", "header"),
    ]
    (act,) = hr.openapi(spec, base_url=server.url)
    assert {*act.parameters["properties"]} == {"x-tenant", "X-Page"}


def test_schemas_that_refer_to_themselves_are_checked_to_the_bottom(server):
    wrong = {"order_id": "A", "lines": [{"parts": [{"sku": 7}]}]}
    result = called(SHOP, server, wrong, "orders_replace", auth={"token": "t-123456"})
    assert (
        result.failure.code == Code.INVALID_ARGUMENTS
        and "lines[0].parts[0].sku" in result.failure.message
    )
    assert server.got == []


def test_schemas_whose_names_are_spelled_alike_stay_two(server):
    def named(field, type):
        return {
            "type": "object",
            "properties": {field: {"type": type}},
            "required": [field],
        }

    schemas = {"用户": named("name", "string"), "订单": named("amount", "integer")}
    spec = document(
        components={"schemas": schemas},
        **fields(
            user={"$ref": "#/components/schemas/用户"},
            order={"$ref": "#/components/schemas/%E8%AE%A2%E5%8D%95"},
        ),
    )
    assert called(spec, server, {"user": {"name": "王"}, "order": {"amount": 1}}).ok
    result = called(spec, server, {"user": {"name": "王"}, "order": {"name": "王"}})
    assert (
        result.failure.code == Code.INVALID_ARGUMENTS
        and "order" in result.failure.message
    )


def test_more_values_than_a_thousand_whose_names_are_spelled_alike_are_read():
    (act,) = operations(
        document(**fields(**{f"{'值' * (n + 1)}": TEXT for n in range(1100)}))
    )
    assert len(act.places) == 1100


def test_two_values_of_one_name_have_two_names(server):
    spec = document(
        "/things/{id}",
        parameters=[param("id", "path"), param("id", "query")],
        **fields(id=TEXT),
    )
    assert set(
        hr.openapi(spec, base_url=server.url)["act"].parameters["properties"]
    ) == {
        "id",
        "id_in_query",
        "id_in_field",
    }
    called(spec, server, {"id": "p", "id_in_query": "q", "id_in_field": "f"})
    method, path, _, sent = server.last
    assert (method, path, json.loads(sent)) == (
        "POST",
        "/v1/things/p?id=q",
        {"id": "f"},
    )


@pytest.mark.parametrize(("operation", "reason"), [
    (body({"$ref": "https://elsewhere.example/schema.json"}), "leads out of the document"),
    (body({"$ref": "#/components/schemas/Absent"}), "leads out of the document or to nothing"),
    ({"parameters": [{"$ref": "#/components/parameters/Absent"}]}, "a parameter leads out"),
    (body(TEXT, "multipart/form-data"), "its body is multipart/form-data, and no plain list of fields"),
    (body(TEXT, "application/xml"), "its body is application/xml, of which none can be written"),
    ({"parameters": [param("a", "query", style="matrix")]}, "the style 'matrix'"),
    ({"parameters": [param("X-Id", "header"), param("x-id", "header")]}, "`X-Id` and `x-id` are one on the wire"),
    ({"parameters": [{"name": "a", "in": "body"}]}, "no name or no place"),
    ({"parameters": [{"name": "a", "in": "query", "content": {"text/csv": {}}}]}, "written as text/csv"),
    (body({"type": "wish"}), "wish"),
])  # fmt: skip
def test_an_operation_that_cannot_be_told_is_left_out_with_a_sentence_and_hides_no_other(
    operation, reason
):
    spec = document(**operation)
    spec["paths"]["/other"] = {"get": {"operationId": "other"}}
    tools = hr.openapi(spec, base_url="https://a.example")
    assert [tool.name for tool in tools] == ["other"]
    assert [each.name for each in tools.left_out] == [
        "act"
    ] and reason in tools.left_out[0].reason


@pytest.mark.parametrize(
    "path", ["@evil.example/x", ".evil.example", "{a}/x", "/x?q=1", "/x#y", "/x\\y"]
)
def test_a_path_that_would_become_another_host_or_swallow_the_query_is_left_out(path):
    spec = document(path, "get", parameters=[param("a", "path")])
    assert [
        "does not begin with a slash" in each.reason for each in operations(spec)
    ] == [True]


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "Cookie",
        "Transfer-Encoding",
        "Connection",
        "x-api-KEY",
    ],
)
def test_no_argument_says_where_a_request_goes_where_it_ends_or_as_whom(name):
    spec = {
        **document(
            method="get", parameters=[param(name, "header"), param("X-Page", "header")]
        ),
        **schemes(type="apiKey", name="X-API-Key", **{"in": "header"}),
    }
    assert [
        *hr.openapi(spec, base_url="https://a.example")["act"].parameters["properties"]
    ] == ["X-Page"]


def test_a_path_that_nobody_fills_and_a_get_with_a_body_are_left_out():
    lost = list(operations(document("/things/{id}")))
    got = list(operations(document(method="get", **body(TEXT))))
    assert ["`id` in its path" in each.reason for each in lost] == [True]
    assert ["cannot have" in each.reason for each in got] == [True]


def test_an_operation_of_the_same_name_is_named_by_method_and_path():
    spec = document()
    spec["paths"]["/more"] = {"get": {"operationId": "act"}}
    assert [each.name for each in operations(spec)] == ["act", "get_more"]


@pytest.mark.parametrize(("spec", "said"), [
    ({"swagger": "2.0", "paths": {}}, "Swagger 2.0"),
    ({"openapi": "3.1.0"}, "no document of OpenAPI"),
    ({"openapi": "4.0.0", "paths": {}}, "no document of OpenAPI"),
    ({"openapi": "3.1.0", "paths": {}}, "no operation can be used as a tool"),
    (document(), "no server"),
    ({**document(), "servers": [{"url": "/v1"}]}, "'/v1' is no address"),
    ({**document(), "servers": [{"url": "ftp://a.example"}]}, "no address"),
    ({**document(), "servers": [{"url": "https://user:pw@a.example"}]}, "no address"),
])  # fmt: skip
def test_a_document_that_cannot_be_used_is_one_sentence(spec, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        hr.openapi(spec)


def test_a_file_that_is_none_is_one_sentence(tmp_path):
    (tmp_path / "a.json").write_text("{")
    for name, said in {
        "a.json": "is not JSON",
        "absent.json": "cannot be read",
    }.items():
        with pytest.raises(ConfigError, match=said):
            hr.openapi(tmp_path / name)


IN_YAML = """
openapi: 3.1.0
x-common: &common {type: string, enum: [no, on, 2026-11-21, 12:30]}
paths:
  /things/{id}:
    get:
      operationId: act
      parameters:
        - {name: id, in: path, required: true, schema: *common}
        - {name: size, in: query, schema: {<<: *common, type: number, enum: [010, 1e3, -0.5]}}
      responses:
        200: {content: {application/json: {schema: {type: object, properties: {on: {type: [string, "null"]}}}}}}
"""


def test_a_document_in_yaml_means_what_it_means_in_json(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "a.yml").write_text(IN_YAML)
    (act,) = hr.openapi(tmp_path / "a.yml", base_url="https://a.example")
    told = act.parameters["properties"]
    assert told["id"]["enum"] == ["no", "on", "2026-11-21", "12:30"]
    assert told["size"] == {"type": "number", "enum": [10, 1000.0, -0.5]}
    assert act.returns == {
        "type": "object",
        "properties": {"on": {"type": ["string", "null"]}},
    }


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{here}: &{here} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, here in zip("abcdefgh", "bcdefghi", strict=True)
)

MERGES = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{here}: &{here} {{<<: [{', '.join([f'*{before}'] * 10)}]}}\n"
    for before, here in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "said"), [
    ("a: [", "it is no YAML: while parsing a flow node"),
    ("a: !!python/object/apply:os.system [true]", "it is no YAML: could not determine a constructor"),
    ("a: !!timestamp 2026-11-21", "it holds a date, which JSON does not have"),
    ("&a [*a]", "its aliases make more than 200 levels of it"),
    ("a: !!timestamp soon", "a value of it cannot be read: AttributeError"),
    ("a: !!bool perhaps", "a value of it cannot be read: KeyError"),
    ("a: 1e999", "it holds a number that is too large"),
    (LAUGHS, "its aliases make more than 2,000,000 values of it"),
    ("- " * 200_000, "it is nested deeper than 200 levels"),
])  # fmt: skip
def test_yaml_that_is_none_or_grows_without_end_is_one_sentence(tmp_path, text, said):
    pytest.importorskip("yaml")
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        hr.openapi(tmp_path / "a.yaml")


@pytest.mark.slow
@pytest.mark.parametrize(("text", "ours", "newer_pyyaml"), [
    # PyYAML 6.0.4 merges a name once, so that nothing grows
    (MERGES, "its merges make more than 2,000,000 values of it", "it is no document of OpenAPI"),
    # and has a bound of its own, which it looks at further ahead
    ("[" * 1_000_000, "it is nested deeper than 200 levels", "exceeded maximum nesting depth"),
])  # fmt: skip
def test_yaml_that_newer_versions_of_pyyaml_bound_themselves_is_one_sentence(
    tmp_path, text, ours, newer_pyyaml
):
    pytest.importorskip("yaml")
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=f"{ours}|{newer_pyyaml}"):
        hr.openapi(tmp_path / "a.yaml")


def test_without_pyyaml_a_person_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "a.yaml").write_text(IN_YAML)
    with pytest.raises(ConfigError, match=re.escape(describe_install("openapi"))):
        hr.openapi(tmp_path / "a.yaml")


@pytest.mark.parametrize(("how", "said"), [
    ({"auth": {"other": "x"}}, "auth names 'other', and the document's security schemes are key, token"),
    ({"effects": {"nothing": "read"}}, "effects names 'nothing'"),
    ({"include": ["nothing*"]}, "there are 4 in the document"),
])  # fmt: skip
def test_a_name_that_the_document_does_not_have_is_told(how, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        hr.openapi(SHOP, **how)


def test_what_is_included_and_what_an_operation_does_can_be_said():
    tools = hr.openapi(SHOP, include=["post_*"], effects={"post_orders": "read"})
    assert [(tool.name, tool.effect) for tool in tools] == [("post_orders", "read")]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "$ref",
                    "in",
                    "name",
                    "schema",
                    "content",
                    "properties",
                    "type",
                    "parameters",
                    "required",
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(item=junk, operation=junk, components=junk)
def test_whatever_a_document_holds_reading_it_does_not_fail(
    item, operation, components
):
    told = {
        "get": operation,
        "put": {"parameters": [operation], "requestBody": item, "security": components},
    }
    list(operations({"paths": {"/a/{b}": told, "/c": item}, "components": components}))


def test_a_document_nested_without_end_is_left_out():
    schema = {}
    for _ in range(5000):
        schema = {"items": schema}
    assert [type(each) for each in operations(document(**body(schema)))] == [LeftOut]


# ---------------------------------------------------------------------- what arrives


PATHS = [
    # style, explode, value, path: the table of OpenAPI 3.1.1, 4.8.12.4
    ("simple", False, "blue", "blue"),
    ("simple", False, ["blue", "black"], "blue,black"),
    ("simple", False, {"R": 100, "G": 200}, "R,100,G,200"),
    ("simple", True, {"R": 100, "G": 200}, "R=100,G=200"),
    ("label", False, "blue", ".blue"),
    ("label", True, ["blue", "black"], ".blue.black"),
    ("matrix", False, ["blue", "black"], ";color=blue,black"),
    ("matrix", True, ["blue", "black"], ";color=blue;color=black"),
    ("matrix", True, {"R": 100}, ";R=100"),
]
QUERIES = [
    ("form", True, "blue", "color=blue"),
    ("form", True, ["blue", "black"], "color=blue&color=black"),
    ("form", False, ["blue", "black"], "color=blue,black"),
    ("form", True, {"R": 100, "G": 200}, "R=100&G=200"),
    ("form", False, {"R": 100, "G": 200}, "color=R,100,G,200"),
    ("spaceDelimited", False, ["blue", "black"], "color=blue%20black"),
    ("pipeDelimited", False, ["blue", "black"], "color=blue%7Cblack"),
    ("deepObject", True, {"R": 100, "G": 200}, "color%5BR%5D=100&color%5BG%5D=200"),
    ("form", True, True, "color=true"),
    ("form", True, None, "color="),
]


@pytest.mark.parametrize(("style", "explode", "value", "path"), PATHS)
def test_a_path_parameter_is_written_as_the_table_says(
    server, style, explode, value, path
):
    spec = document(
        "/c/{color}",
        "get",
        parameters=[param("color", "path", {}, style=style, explode=explode)],
    )
    called(spec, server, {"color": value})
    assert server.last[1] == f"/v1/c/{path}"


@pytest.mark.parametrize(("style", "explode", "value", "query"), QUERIES)
def test_a_query_parameter_is_written_as_the_table_says(
    server, style, explode, value, query
):
    spec = document(
        method="get",
        parameters=[param("color", "query", {}, style=style, explode=explode)],
    )
    called(spec, server, {"color": value})
    assert server.last[1] == f"/v1/things?{query}"


@pytest.mark.parametrize(("value", "query"), [
    ({"a": {"x": 1, "y": [2, 3]}}, "filter%5Ba%5D%5Bx%5D=1&filter%5Ba%5D%5By%5D=2&filter%5Ba%5D%5By%5D=3"),
    ({"tenant": 1}, "filter%5Btenant%5D=1"),  # which is no `tenant`
    ({"owner": 1}, None), ({"OWNER": 1}, None), ({"owner": {"id": 1}}, None), ({"a": {"b": 1}}, None),
    ({"a": {"b": {"c": 1}}}, None), ({"a": {"tenant": 1}}, "filter%5Ba%5D%5Btenant%5D=1"),
])  # fmt: skip
def test_an_object_in_a_parameter_becomes_no_other_parameter(server, value, query):
    deep = param(
        "filter", "query", {"type": "object"}, style="deepObject", explode=True
    )
    others = [
        param(name, "query") for name in ("filter[owner]", "filter[a][b]", "tenant")
    ]
    result = called(
        document(method="get", parameters=[deep, *others]), server, {"filter": value}
    )
    if query is None:
        assert result.failure.code == "INVALID_ARGUMENTS"
        assert "the service would take it for another value" in result.failure.message
    else:
        assert server.last[1] == f"/v1/things?{query}"


def test_headers_cookies_and_json_in_a_parameter(server):
    as_json = {
        "name": "where",
        "in": "query",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
    spec = document(
        method="get",
        parameters=[param("X-Tag", "header", {}), param("sid", "cookie"), as_json],
    )
    called(spec, server, {"X-Tag": ["a", "b"], "sid": "x;y=z", "where": {"a": [1]}})
    _, path, headers, _ = server.last
    assert (headers["X-Tag"], headers["Cookie"]) == ("a,b", "sid=x%3By%3Dz")
    assert parse_qs(urlsplit(path).query) == {"where": ['{"a": [1]}']}


@pytest.mark.parametrize(("kind", "schema", "arguments", "sent"), [
    ("application/json", {"type": "array", "items": TEXT}, {"body": ["a", "ü"]}, '["a","ü"]'),
    ("application/json", {"type": "object", "additionalProperties": True}, {"body": {"x": 1}}, '{"x":1}'),
    ("application/merge-patch+json", {"properties": {"a": {}}}, {"a": None}, '{"a":null}'),
    ("application/json", {"properties": {"a": {}}, "additionalProperties": False}, {"a": 1}, '{"a":1}'),
    ("application/x-www-form-urlencoded", AB, {"a": ["1", "2"], "b": "x&y"}, "a=1&a=2&b=x%26y"),
    ("text/plain", TEXT, {"body": "héllo"}, "héllo"),
    ("application/json", {"properties": {"a": {}}}, {}, "{}"),
])  # fmt: skip
def test_a_body_is_written_in_its_type(server, kind, schema, arguments, sent):
    result = called(document(**body(schema, kind)), server, arguments)
    assert result.ok and server.last[3].decode() == sent
    assert server.last[2]["Content-Type"] == kind


UPLOAD = {
    "title": TEXT, "count": {"type": "integer"}, "tags": {"type": "array", "items": TEXT},
    "where": {"type": "object", "additionalProperties": True}, "note": TEXT,
    "picture": {"type": "string", "format": "binary", "description": "What it looks like."},
    "more": {"type": "array", "items": {"type": "string", "contentMediaType": "text/plain"}},
}  # fmt: skip


def test_a_multipart_body_has_a_part_for_each_field_and_files_come_in_base64(server):
    spec = document(
        **body(
            {"type": "object", "required": ["title"], "properties": UPLOAD},
            "multipart/form-data",
        )
    )
    content = spec["paths"]["/things"]["post"]["requestBody"]["content"][
        "multipart/form-data"
    ]
    content["encoding"] = {
        "picture": {"contentType": "image/png, image/jpeg"},
        "note": {"contentType": "text/markdown"},
    }
    tools = hr.openapi(spec, base_url=server.url)
    told = tools["act"].parameters["properties"]
    assert told["picture"] == {
        "type": "string", "contentEncoding": "base64", "description": "What it looks like. Its bytes in base64.",
    }  # fmt: skip
    picture, one, two = (
        base64.b64encode(each).decode() for each in (b"\0PNG\r\n--", b"one", b"two")
    )
    given = {"title": 'a "b"\r\nc', "count": 2, "tags": ["x", "y"], "where": {"a": "ü"}, "note": "# n",
             "picture": picture, "more": [one, two]}  # fmt: skip
    assert called(tools, server, given).ok
    _, _, headers, sent = server.last
    assert parts_of(headers["Content-Type"], sent) == [
        ("title", None, "text/plain", b'a "b"\r\nc'), ("count", None, "text/plain", b"2"),
        ("tags", None, "text/plain", b"x"), ("tags", None, "text/plain", b"y"),
        ("where", None, "application/json", '{"a": "ü"}'.encode()), ("note", None, "text/markdown", b"# n"),
        ("picture", "picture.png", "image/png", b"\0PNG\r\n--"),
        ("more", "more.txt", "text/plain", b"one"), ("more", "more.txt", "text/plain", b"two"),
    ]  # fmt: skip


def parts_of(content_type, sent):
    """Read a multipart body by the standard library's reader of e-mail, which has the same form."""
    message = BytesParser(policy=HTTP).parsebytes(
        f"Content-Type: {content_type}\r\n\r\n".encode() + sent
    )
    return [
        (each.get_param("name", header="content-disposition"), each.get_filename(), each.get_content_type(),
         each.get_payload(decode=True)) for each in message.iter_parts()
    ]  # fmt: skip


def test_a_multipart_body_sent_again_is_the_same_to_the_byte(server):
    spec = document(
        method="put", **body({"properties": {"a": TEXT}}, "multipart/form-data")
    )
    server.will(503)
    assert called(spec, server, {"a": "x"}).ok
    first, second = server.got
    assert (first[2]["Content-Type"], first[3]) == (
        second[2]["Content-Type"],
        second[3],
    )


def test_a_file_that_is_no_base64_is_refused_and_nothing_is_sent(server):
    spec = document(**body({"properties": UPLOAD}, "multipart/form-data"))
    result = called(spec, server, {"picture": "no base64"})
    assert (result.failure.code, "base64" in result.failure.message, server.got) == (
        "INVALID_ARGUMENTS",
        True,
        [],
    )


def test_a_multipart_body_without_a_field_is_one_all_the_same(server):
    assert called(
        document(**body({"properties": UPLOAD}, "multipart/form-data")), server
    ).ok
    assert parts_of(server.last[2]["Content-Type"], server.last[3]) == []


def _is_segment(text):
    return text not in ("", ".", "..")


# what means something in an address
signs = st.text(st.sampled_from("/?#&=%;.,+ {}:@北"))
values = (signs | st.text()).filter(_is_segment)
EVERYWHERE = document(
    "/a/{where}/z",
    parameters=[
        param("where", "path"),
        param("q", "query"),
        param("list", "query", {"type": "array", "items": TEXT}),
    ],
    **fields(deep={}, text=TEXT),
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=60,
)
@given(
    where=values,
    q=signs | st.text(),
    many=st.lists(signs | st.text(), max_size=3),
    text=st.text(),
    deep=junk,
)
def test_what_goes_in_arrives_exactly(running, where, q, many, text, deep):
    arguments = {"where": where, "q": q, "list": many, "text": text, "deep": deep}
    assert called(EVERYWHERE, running, arguments).ok
    _, path, _, sent = running.last
    split = urlsplit(path)
    assert (
        unquote(split.path.removeprefix("/v1/a/").removesuffix("/z"), errors="strict")
        == where
    )
    assert split.path.count("/") == 4  # a value never becomes a further segment
    assert parse_qsl(split.query, keep_blank_values=True) == [
        ("q", q),
        *(("list", each) for each in many),
    ]
    assert json.loads(sent) == {"text": text, "deep": deep}


@pytest.mark.parametrize("value", ["..", ".", ""])
def test_a_value_that_would_be_another_path_is_refused_and_nothing_is_sent(
    server, value
):
    result = called(
        document("/a/{id}/b", parameters=[param("id", "path")]), server, {"id": value}
    )
    assert (result.failure.code, server.got) == (Code.INVALID_ARGUMENTS, [])


@pytest.mark.parametrize("name", ["api_key", "API_KEY", "page"])
def test_no_name_in_an_object_becomes_another_parameter_or_a_credential(server, name):
    spec = {
        **document(
            method="get",
            parameters=[
                param("filter", "query", {"type": "object"}),
                param("page", "query"),
            ],
        ),
        **schemes(type="apiKey", name="api_key", **{"in": "query"}),
    }
    result = called(
        spec, server, {"filter": {"color": "red", name: "x"}}, auth={"it": "k-123456"}
    )
    assert (result.failure.code, name in result.failure.message, server.got) == (
        "INVALID_ARGUMENTS",
        True,
        [],
    )
    assert called(
        spec, server, {"filter": {"color": "red"}, "page": "2"}, auth={"it": "k-123456"}
    ).ok
    assert server.last[1] == "/v1/things?color=red&page=2&api_key=k-123456"


def test_no_name_in_a_field_of_a_form_becomes_another_field(server):
    spec = document(
        **body(
            {"properties": {"to": TEXT, "extra": {"type": "object"}}},
            "application/x-www-form-urlencoded",
        )
    )
    result = called(spec, server, {"to": "a", "extra": {"to": "b"}})
    assert (result.failure.code, server.got) == ("INVALID_ARGUMENTS", [])


def test_a_security_scheme_may_stand_elsewhere_in_the_document(server):
    spec = {
        **document(method="get"),
        "security": [{"it": []}],
        "x-key": {"type": "http", "scheme": "basic"},
    }
    spec["components"] = {"securitySchemes": {"it": {"$ref": "#/x-key"}}}
    called(spec, server, auth={"it": "me:pw"})
    assert server.last[2]["Authorization"].startswith("Basic ")


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "北京", "\0"])
def test_a_value_that_no_header_can_hold_is_refused_and_nothing_is_sent(server, value):
    result = called(
        document(parameters=[param("X-Tag", "header")]), server, {"X-Tag": value}
    )
    assert (result.failure.code, server.got) == (Code.INVALID_ARGUMENTS, [])


def test_an_argument_the_document_does_not_have_is_refused(server):
    result = called(
        SHOP,
        server,
        {"order_id": "A", "api_key": "mine"},
        "getOrder",
        auth={"key": "k-123456"},
    )
    assert (result.failure.code, server.got) == (Code.INVALID_ARGUMENTS, [])


# ---------------------------------------------------------------------- keys and credentials


def schemes(**one):
    return {"components": {"securitySchemes": {"it": one}}, "security": [{"it": []}]}


@pytest.mark.parametrize(("scheme", "secret", "where", "sent"), [
    ({"type": "http", "scheme": "bearer"}, "t-123", "Authorization", "Bearer t-123"),
    ({"type": "http", "scheme": "Basic"}, "me:pw", "Authorization", "Basic " + base64.b64encode(b"me:pw").decode()),
    ({"type": "oauth2", "flows": {}}, "t-123", "Authorization", "Bearer t-123"),
    ({"type": "apiKey", "in": "header", "name": "X-Key"}, "k-123", "X-Key", "k-123"),
    ({"type": "apiKey", "in": "cookie", "name": "sid"}, "k 1", "Cookie", "sid=k%201"),
    ({"type": "http", "scheme": "bearer"}, lambda: "fresh", "Authorization", "Bearer fresh"),
])  # fmt: skip
def test_a_credential_goes_along_as_its_scheme_says(
    server, scheme, secret, where, sent
):
    called({**document(method="get"), **schemes(**scheme)}, server, auth={"it": secret})
    assert server.last[2][where] == sent


def test_a_key_in_the_query_goes_along_and_the_first_alternative_that_is_complete_is_taken(
    server,
):
    called(SHOP, server, {"order_id": "A"}, "getOrder", auth={"token": "t-123456"})
    assert (server.last[1], server.last[2]["Authorization"]) == (
        "/v1/orders/A",
        "Bearer t-123456",
    )
    called(SHOP, server, {"order_id": "A"}, "getOrder", auth={"key": "k&1"})
    assert (server.last[1], server.last[2]["Authorization"]) == (
        "/v1/orders/A?api_key=k%261",
        None,
    )


def test_without_credentials_nothing_is_sent_and_an_open_operation_needs_none(server):
    result = called(SHOP, server, {"order_id": "A"}, "getOrder")
    assert (result.failure.code, server.got) == ("NOT_AUTHENTICATED", [])
    assert result.failure.message.endswith("that were not set up: key (apiKey).")
    spec = {**document(method="get", security=[{}]), "security": [{"it": []}]}
    assert called(spec, server).ok


HEADER = {"type": "apiKey", "in": "header", "name": "X-Key"}


@pytest.mark.parametrize(("scheme", "secret", "said"), [
    (HEADER, "k-123\n", "holds a line break"),
    (HEADER, "k-123\r\nX-Admin: 1", "holds a line break"),
    ({"type": "apiKey", "in": "query", "name": "key"}, "k\n", "holds a line break"),
    ({"type": "http", "scheme": "basic"}, "me:pw\n", "holds a line break"),
    (HEADER, "schlüssel", "only ASCII"),
    ({"type": "oauth2", "flows": {}}, "tökén", "only ASCII"),
    (HEADER, "", "is empty"),
    (HEADER, None, "is no text but a NoneType"),
    ({"type": "http", "scheme": "Digest"}, "me:pw", "of the kind http digest, which cannot be sent"),
    ({"type": "mutualTLS"}, "x", "of the kind mutualTLS, which cannot be sent"),
])  # fmt: skip
def test_a_credential_that_cannot_be_sent_is_said_when_the_tools_are_made(
    scheme, secret, said
):
    with pytest.raises(ConfigError, match=said) as told:
        hr.openapi(
            {**document(), **schemes(**scheme)},
            base_url="https://a.example",
            auth={"it": secret},
        )
    assert not secret or secret not in str(told.value)


def test_a_credential_that_a_function_gives_with_a_line_break_sends_nothing(server):
    result = called(
        {**document(), **schemes(**HEADER)}, server, auth={"it": lambda: "k-123\n"}
    )
    assert (result.failure.code, server.got) == ("UNAVAILABLE", [])


@pytest.mark.parametrize(("scheme", "secret"), [
    ({"type": "apiKey", "in": "query", "name": "key"}, "schlüssel"),
    ({"type": "http", "scheme": "basic"}, "me:schlüssel"),
])  # fmt: skip
def test_a_credential_beyond_ascii_goes_where_it_can_be_written(server, scheme, secret):
    assert called({**document(), **schemes(**scheme)}, server, auth={"it": secret}).ok


def test_a_token_that_takes_a_flow_is_named_as_one_that_somebody_must_fetch(server):
    result = called(
        {**document(), **schemes(type="oauth2", flows={"clientCredentials": {}})},
        server,
    )
    assert (
        "it (oauth2, a token that somebody must fetch beforehand)"
        in result.failure.message
    )
    assert server.got == []


def test_a_credential_that_the_service_says_back_is_not_told(server):
    server.will(403, {"message": "the key k-123456 may not"})
    spec = {**document(), **schemes(type="apiKey", name="X-Key", **{"in": "header"})}
    result = called(spec, server, auth={"it": "k-123456"})
    assert "k-123456" not in result.text and "the key *** may not" in result.text


BASIC = {"type": "http", "scheme": "basic"}
IN_QUERY = {"type": "apiKey", "in": "query", "name": "key"}


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(("scheme", "secret", "said"), [
    (BASIC, "user:passw0rd!x", base64.b64encode(b"user:passw0rd!x").decode()),
    (BASIC, "user:passw0rd!x", "passw0rd!x"),
    (IN_QUERY, "ab/cd+ef==", "ab%2Fcd%2Bef%3D%3D"),
    (IN_QUERY, "ab/cd+ef==", "ab/cd+ef=="),
])  # fmt: skip
def test_a_credential_is_told_in_no_form_in_which_it_went_also_by_an_answer(
    server, status, scheme, secret, said
):
    server.will(status, {"message": [f"you sent {said}", {said: 1}]})
    result = called(
        {**document(method="get"), **schemes(**scheme)}, server, auth={"it": secret}
    )
    assert said not in result.text and "you sent ***" in result.text


def test_a_key_in_the_query_stands_in_no_log(server, caplog):
    caplog.set_level("DEBUG")
    spec = {**document(method="get"), **schemes(**IN_QUERY)}
    assert called(spec, server, auth={"it": "k-123456"}).ok
    assert (
        server.last[1].endswith("?key=k-123456") and "HTTP Request: GET" in caplog.text
    )
    assert "k-123456" not in caplog.text


@pytest.mark.parametrize("status", [200, 400])
def test_a_credential_is_masked_however_deep_it_lies(server, status):
    """900 brackets are a JSON text that Python reads, and more steps than it calls itself."""
    deep = '{"a":[' * 450 + '"k-123456"' + "]}" * 450
    server.will(status, deep.encode())
    spec = {**document(method="get"), **schemes(**IN_QUERY)}
    result = called(spec, server, auth={"it": "k-123456"})
    assert "k-123456" not in result.text and (
        result.ok if status == 200 else result.failure.code == "REQUEST_REFUSED"
    )


def test_of_a_credential_that_changes_the_one_that_was_sent_is_not_told(server):
    tokens = iter(["first-token", "second-token", "third-token"])
    server.will(403, {"message": "first-token is not known"})
    spec = {**document(method="get"), **schemes(type="http", scheme="bearer")}
    result = called(spec, server, auth={"it": lambda: next(tokens)})
    assert "*** is not known" in result.text and next(tokens) == "second-token"


def test_a_credential_that_cannot_be_had_sends_nothing_and_leaves_no_write_in_doubt(
    server, tmp_path
):
    def token():
        raise RuntimeError("the door is shut: s-123456")

    result = called(
        {**document(), **schemes(type="http", scheme="bearer")},
        server,
        auth={"it": token},
    )
    assert (result.failure.code, result.failure.retryable, server.got) == (
        Code.UNAVAILABLE,
        True,
        [],
    )
    assert "s-123456" not in result.text


def test_a_write_carries_the_key_of_its_act_and_a_read_none(server):
    called(document(), server)
    first = server.last[2]["Idempotency-Key"]
    called(document(), server)
    assert first and server.last[2]["Idempotency-Key"] != first
    called(document(method="get"), server)
    assert server.last[2]["Idempotency-Key"] is None


def test_a_service_that_says_it_knows_keys_is_asked_again_with_the_same(server):
    server.will(503)
    result = called(
        document(parameters=[param("Idempotency-Key", "header", required=True)]), server
    )
    keys = {headers["Idempotency-Key"] for _, _, headers, _ in server.got}
    assert result.ok and (len(server.got), len(keys)) == (2, 1)


# ---------------------------------------------------------------------- what came of it


@pytest.mark.parametrize(("status", "code"), [
    (400, "REQUEST_REFUSED"), (401, "NOT_AUTHENTICATED"), (403, "NOT_PERMITTED"), (404, "NOT_FOUND"),
    (422, "REQUEST_REFUSED"), (418, "REQUEST_REFUSED"),
])  # fmt: skip
def test_a_refusal_is_told_with_the_words_of_the_service(server, status, code):
    server.will(
        status, {"type": "about:blank", "title": "No such order", "status": status}
    )
    result = called(document(), server)
    assert (result.failure.code, len(server.got)) == (code, 1)
    assert "No such order" in result.failure.message


@pytest.mark.parametrize(("status", "state"), [
    (201, "done"), (404, "failed"), (422, "failed"), (302, "in_doubt"), (409, "in_doubt"), (503, "in_doubt"),
    (0, "in_doubt"),
])  # fmt: skip
def test_the_ledger_knows_what_a_status_says_of_a_write(
    server, tmp_path, status, state
):
    server.will(status, {"message": "so it is"})
    with hr.SyncRuntime(
        hr.openapi(document(), base_url=server.url), store=f"sqlite:///{tmp_path}/l.db"
    ) as runtime:
        runtime.call("act", {}, run="r")
        (kept,) = runtime.store.list_writes(run_id="r").result()
    assert kept.state == state


def test_a_write_that_the_service_asks_to_wait_with_is_sent_again_after_that_wait(
    server,
):
    server.will(429, {"message": "slowly"}, Retry_After="0")
    result = called(document(), server)
    assert (result.ok, result.attempts, len(server.got)) == (True, 2, 2)


def test_a_write_to_a_service_that_takes_no_connection_was_not_done():
    # a port that nobody may listen on
    tools = hr.openapi(document(), base_url="http://127.0.0.1:1")
    with hr.SyncRuntime(tools, backoff=FAST) as runtime:
        result = runtime.call("act", {})
    assert (result.failure.code, result.attempts) == (Code.UNAVAILABLE, 3)


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504, 0])
def test_after_a_status_that_leaves_it_open_a_write_is_in_doubt_and_not_sent_again(
    server, status
):
    server.will(status, {"message": "later"})
    result = called(document(), server)
    assert (result.failure.code, len(server.got)) == (Code.IN_DOUBT, 1)


def test_a_conflict_is_told_and_leaves_it_open(server):
    server.will(409, {"message": "exists already"})
    result = called(document(), server)
    assert (result.failure.code, len(server.got)) == (
        "CONFLICT",
        1,
    ) and "exists already" in result.text


@pytest.mark.parametrize("method", ["get", "put"])
def test_a_read_and_a_put_are_sent_again(server, method):
    server.will(503)
    server.will(0)
    result = called(document(method=method), server)
    assert (result.value, len(server.got)) == ({"ok": True}, 3)


def test_nothing_listens_and_the_write_certainly_did_not_happen(server):
    result = called(hr.openapi(document(), base_url="http://127.0.0.1:9"), server)
    assert result.failure.code == Code.UNAVAILABLE


def test_a_redirect_is_not_followed_so_that_no_credential_goes_elsewhere(server):
    server.will(302, location="http://elsewhere.example/")
    result = called(document(method="get"), server)
    assert (result.failure.code, len(server.got)) == ("REQUEST_REFUSED", 1)


@pytest.mark.parametrize(("headers", "sent", "value"), [
    ({}, b'[1, "\xc3\xbc"]', [1, "ü"]),
    ({"content_type": "text/plain"}, "grüezi".encode(), "grüezi"),
    ({"content_type": "application/json"}, b"not json", "not json"),
    ({"content_type": "application/zip"}, b"PK\xff", {"media_type": "application/zip", "bytes": 3}),
    ({}, b"", {"status": 200}),
])  # fmt: skip
def test_an_answer_is_json_text_or_described(server, headers, sent, value):
    server.will(200, sent, **headers)
    got = called(document(method="get"), server).value
    assert got == value or {**got, "note": None} == {**value, "note": None}


def test_a_picture_is_shown(server):
    server.will(200, b"\x89PNG", content_type="image/png")
    assert called(document(method="get"), server).media[0].data == b"\x89PNG"


def test_an_answer_that_is_too_large_is_not_read_and_a_write_that_happened_is_told_so(
    server,
):
    big = b'"' + b"x" * 2000 + b'"'
    server.will(200, big)
    read = called(document(method="get"), server, most_bytes=1000)
    server.will(201, big)
    wrote = called(document(), server, most_bytes=1000)
    assert (read.failure.code, wrote.value["status"]) == ("TOO_LARGE", 201)


def test_tools_under_other_names_work_all_the_same(server):
    tools = hr.openapi(document(method="get"), base_url=server.url).prefix("shop_")
    assert called(tools, server, tool="shop_act").ok


def test_every_tool_of_a_service_shares_one_client_that_is_closed_at_the_end(server):
    spec = document(method="get")
    spec["paths"]["/more"] = {"get": {"operationId": "more"}}
    tools = hr.openapi(spec, base_url=server.url)
    with hr.SyncRuntime(tools) as runtime:
        assert runtime.call("act", {}).ok and runtime.call("more", {}).ok
        client = tools["act"].client
        assert client is tools["more"].client and not client.is_closed
    assert client.is_closed
