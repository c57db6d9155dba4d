"""Finding tools by meaning, with an embedding model of a few concepts and a server that speaks the real form."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import handrail as hr
from handrail.errors import ModelError
from handrail.selectors import VectorMemory
from handrail.selectors.endpoint import Endpoint
from handrail.selectors.hybrid import Fused
from handrail.selectors.strategies import Searching
from handrail.selectors.vector_file import VectorFile
from handrail.testing import ScriptedModel
from tests.selectors.tools import FEW, described

CONCEPTS = (
    ("weather", "rain", "umbrella", "下雨"),
    ("refund", "money", "reimburse", "退款"),
    ("power", "electricity", "meter"),
)


def concepts(text):
    """Return a vector that a small model might: which of three subjects a text is about."""
    return [
        float(sum(word in text.lower() for word in concept)) for concept in CONCEPTS
    ]


class Counting:
    """An embedding function that counts what it embedded."""

    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return [concepts(text) for text in texts]


def names(hits):
    return [tool.name for tool in hits]


@pytest.mark.parametrize(("question", "wanted"), [
    ("Do I need an umbrella?", "get_weather"), ("Reimburse me!", "refund_order"), ("electricity", "getPowerOutput"),
])  # fmt: skip
def test_a_tool_is_found_by_meaning_without_a_word_in_common(question, wanted):
    assert names(hr.selectors.bm25(FEW).top(question, 1)) == []
    assert names(hr.selectors.embeddings(FEW, Counting()).top(question, 1)) == [wanted]


def test_a_text_is_embedded_once(tmp_path):
    for cache in (VectorMemory(), VectorFile(tmp_path / "vectors.db")):
        embed = Counting()
        hr.selectors.embeddings(FEW, embed, cache=cache).top("rain")
        hr.selectors.embeddings(FEW, embed, cache=cache).top("rain")
        assert len(embed.texts) == len(FEW) + 1


def test_a_file_of_vectors_outlives_what_wrote_it(tmp_path):
    hr.selectors.embeddings(FEW, Counting(), cache=VectorFile(tmp_path / "v.db"))
    embed = Counting()
    again = hr.selectors.embeddings(FEW, embed, cache=VectorFile(tmp_path / "v.db"))
    assert (names(again.top("rain", 1)), embed.texts) == (["get_weather"], ["rain"])


def test_a_function_that_loses_texts_is_found_out():
    with pytest.raises(ModelError, match="5 texts were embedded as 1 vectors"):
        hr.selectors.embeddings(FEW, lambda texts: [[1.0]])


# -- both --------------------------------------------------------------------------------------------------------------


def test_words_and_meaning_are_fused_where_the_model_knows_the_script():
    hits = names(hr.selectors.hybrid(FEW, Counting()).top("refund for the umbrella", 2))
    assert set(hits) == {"refund_order", "get_weather"}


def test_a_question_in_a_script_that_the_model_cannot_read_is_ranked_by_words_alone():
    embed = Counting()
    fused = hr.selectors.hybrid(FEW, embed)
    embed.texts.clear()
    assert names(fused.top("明天去上海的火车票", 3)) == ["query_train_ticket"]
    assert embed.texts == []
    hr.selectors.hybrid(FEW, embed, scripts={"cjk"}).top("火车票")
    assert embed.texts[-1] == "火车票"


def test_a_model_that_fails_costs_the_fusion_and_not_the_answer():
    embed = Counting()
    fused = hr.selectors.hybrid(
        FEW, lambda texts: embed(texts) if len(texts) > 1 else []
    )
    assert names(fused.top("the weather", 1)) == ["get_weather"]


# -- a server ----------------------------------------------------------------------------------------------------------


class _Embeddings(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, self.headers.get("authorization"), asked))
        rows = [
            {"index": n, "embedding": concepts(text)}
            for n, text in enumerate(asked["input"])
        ]
        # any order is permitted
        body = self.server.answer or json.dumps({"object": "list", "data": rows[::-1]})
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Embeddings)
    made.asked, made.answer, made.status = [], "", 200
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def endpoint(server, monkeypatch):
    monkeypatch.setenv("EMBEDDINGS_KEY", "k-1\n")
    made = Endpoint(
        "small", f"http://127.0.0.1:{server.server_address[1]}/v1", "EMBEDDINGS_KEY"
    )
    yield made
    made.client.close()


def test_an_endpoint_is_asked_in_its_own_form(server, endpoint):
    assert names(hr.selectors.embeddings(FEW, endpoint).top("umbrella", 1)) == [
        "get_weather"
    ]
    path, key, asked = server.asked[-1]
    assert (path, key) == ("/v1/embeddings", "Bearer k-1")
    assert asked == {
        "model": "small",
        "input": ["umbrella"],
        "encoding_format": "float",
    }


def test_a_chinese_question_finds_an_english_tool_by_a_multilingual_endpoint(
    server, endpoint, drive
):
    selector = Searching(
        lambda tools: hr.selectors.hybrid(tools, endpoint, scripts={"latin", "cjk"}),
        most=1,
        waits=True,
    )
    question = "明天会下雨吗？"
    assert names(hr.selectors.bm25(FEW).top(question)) == []
    model = ScriptedModel(["不会。"])
    drive(FEW, selector=selector).run(question, model=model)
    assert names(model.requests[0].tools) == ["search_tools", "get_weather"]
    assert server.asked[-1][2]["input"] == [question]


def test_what_one_ranking_has_first_beats_what_both_have_far_down():
    """The sixth of both gets 2/11, the first of one 1/6 and what its place in the other adds."""

    class Fixed:
        def __init__(self, *tools):
            self.tools = tools

        def top(self, query, k=5):
            return self.tools[:k]

    a, b, c, d, e, f = (described(name, "") for name in "abcdef")
    fused = Fused(
        Fixed(a, b, c, d, e, f), Fixed(e, d, c, b, a, f), frozenset(["latin"])
    )
    assert names(fused.top("which", 6))[:2] == ["a", "e"]
    assert names(fused.top("which", 6))[-1] == "f"


@pytest.mark.parametrize(("status", "answer", "said"), [
    (500, "no", "answered 500"), (200, "no JSON", "no embeddings"), (200, '{"data": [{"index": 0}]}', "no embeddings"),
])  # fmt: skip
def test_what_an_endpoint_says_otherwise_is_an_error_without_the_key(
    server, endpoint, status, answer, said
):
    server.status, server.answer = status, answer
    with pytest.raises(ModelError, match=said) as raised:
        endpoint(["text"])
    assert "k-1" not in str(raised.value)


def test_an_endpoint_that_is_away_is_an_error(server, endpoint):
    away = Endpoint("small", "http://127.0.0.1:9/v1", client=endpoint.client)
    with pytest.raises(ModelError, match="gave no answer"):
        away(["text"])


def test_a_run_can_choose_its_tools_by_meaning(drive):
    selector = Searching(
        lambda tools: hr.selectors.hybrid(tools, Counting()), most=1, waits=True
    )
    model = ScriptedModel(["Take one."])
    run = drive(FEW, selector=selector).run("Do I need an umbrella?", model=model)
    assert (run.text, names(model.requests[0].tools)) == (
        "Take one.",
        ["search_tools", "get_weather"],
    )
