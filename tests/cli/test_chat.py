"""`handrail chat`, with questions from a pipe; Ctrl-C and the terminal are in `test_interrupts`."""

from handrail.testing import Fault, ScriptedServer, call


def test_a_conversation_goes_on_over_several_questions(cli, shop):
    with ScriptedServer(
        [call("get_order", order_id="A-1"), "It is paid.", "You asked twice."]
    ) as server:
        result = cli(
            "chat",
            "--tools",
            shop,
            "--model",
            server.model,
            stdin="How is A-1?\n\nAnd now?\n",
        )
        assert [message["role"] for message in server.requests[-1]["messages"]] == [
            "user", "assistant", "tool", "assistant", "user",
        ]  # fmt: skip
    assert result.exit_code == 0
    assert result.stdout.split() == ["It", "is", "paid.", "You", "asked", "twice."]
    assert "→ get_order" in result.stderr


def test_a_question_that_failed_is_forgotten_and_can_be_asked_again(cli):
    with ScriptedServer(
        ["Yes."], faults=[Fault(401, '{"error": {"message": "no"}}')]
    ) as server:
        result = cli("chat", "--model", server.model, stdin="Ready?\nReady?\n")
        assert [message["content"] for message in server.requests[-1]["messages"]] == [
            "Ready?"
        ]
    assert result.exit_code == 0  # that of the last answer
    assert "failed: " in result.stderr
    assert result.stdout.strip() == "Yes."


def test_a_model_that_cannot_be_used_is_told_before_the_first_question(cli):
    result = cli("chat", "--model", "openai:gpt", stdin="Hello\n")
    assert result.exit_code == 2
    assert "set OPENAI_API_KEY" in result.stderr


def test_the_exit_code_is_that_of_the_last_answer(cli, shop):
    with ScriptedServer(["Yes.", call("delete_order", order_id="A-1")]) as server:
        assert (
            cli(
                "chat",
                "--tools",
                shop,
                "--model",
                server.model,
                stdin="Ready?\nDelete A-1\n",
            ).exit_code
            == 3
        )


def test_the_system_text_stays_at_the_head(cli):
    with ScriptedServer(["One.", "Two."]) as server:
        cli("chat", "--model", server.model, "--system", "Be short.", stdin="1\n2\n")
        roles = [message["role"] for message in server.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]


def test_what_a_tool_prints_is_no_part_of_the_answer(cli, talkative):
    with ScriptedServer([call("look"), "Seen."]) as server:
        result = cli(
            "chat", "--tools", talkative, "--model", server.model, stdin="Look!\n"
        )
    assert result.stdout.strip() == "Seen."
    assert "looking" in result.stderr


def test_an_injected_parameter_is_filled_or_missed_before_the_first_question(
    cli, tenants
):
    with ScriptedServer(
        [call("orders_of", day=3), lambda messages: messages[-1].result.text]
    ) as server:
        words = ("chat", "--tools", tenants, "--model", server.model)
        missed = cli(*words, stdin="")
        assert missed.exit_code == 2
        assert "--inject tenant=..." in missed.stderr
        assert (
            "acme on 3"
            in cli(*words, "--inject", "tenant=acme", stdin="Which?\n").stdout
        )


def test_help_tools_and_quit_are_answered_here_and_never_by_the_model(cli, shop):
    with ScriptedServer(["Yes."]) as server:
        result = cli(
            "chat",
            "--tools",
            shop,
            "--model",
            server.model,
            stdin="/help\n/tools\nReady?\n/quit\nMore?\n",
        )
        (request,) = server.requests
    assert [message["content"] for message in request["messages"]] == ["Ready?"]
    assert (result.exit_code, result.stdout.strip()) == (0, "Yes.")
    assert "/tools  list" in result.stderr
    assert "get_order: " in result.stderr


# ---------------------------------------------------------------------- going on


def test_a_conversation_of_the_store_goes_on_tomorrow(cli, tmp_path):
    store = ["--store", f"sqlite:///{tmp_path}/h.db"]
    with ScriptedServer(["One.", "Two.", "Three.", "Four."]) as server:
        model = ["--model", server.model]
        first = cli("chat", *model, *store, "--system", "Be short.", stdin="1?\n")
        assert "handrail chat --session r_" in first.stderr
        again = cli("chat", *model, *store, "--continue", stdin="2?\n")
        assert "1 question so far" in again.stderr
        run = cli("run", "3?", *model, *store, "--continue")
        named = first.stderr.partition("--session ")[2].split()[0]
        last = cli("chat", *model, *store, "--session", named, stdin="4?\n")
        contents = [each["content"] for each in server.requests[-1]["messages"]]
    answers = [each.stdout.strip() for each in (first, again, run, last)]
    assert answers == ["One.", "Two.", "Three.", "Four."]
    assert contents == [
        "Be short.", "1?", "One.", "2?", "Two.", "3?", "Three.", "4?",
    ]  # fmt: skip


def test_a_conversation_is_begun_under_a_name(cli, tmp_path):
    store = ["--store", f"sqlite:///{tmp_path}/h.db"]
    with ScriptedServer(["One.", "Two."]) as server:
        for question in ("1?", "2?"):
            how = ["--model", server.model, *store, "--session", "ticket-881"]
            assert cli("run", question, *how).exit_code == 0
        roles = [each["role"] for each in server.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_a_question_after_one_that_waits_is_refused_in_a_sentence(cli, shop, tmp_path):
    with ScriptedServer([call("delete_order", order_id="A-1"), "Yes."]) as server:
        result = cli(
            "chat",
            "--tools",
            shop,
            "--model",
            server.model,
            "--store",
            f"sqlite:///{tmp_path}/h.db",
            stdin="Delete A-1\nReady?\n",
        )
        assert len(server.requests) == 1
    assert "has not answered yet" in result.stderr
    assert result.exit_code == 2


def test_what_names_no_conversation_is_told(cli, tmp_path):
    store = ["--store", f"sqlite:///{tmp_path}/h.db"]
    for words, sentence in (
        ([*store, "--continue"], "no conversation in this store yet"),
        ([*store, "--continue", "--session", "s"], "choose one"),
        (["--continue"], "keeps no runs"),
        (["--session", "s"], "keeps no runs"),
    ):
        result = cli("run", "?", "--model", "openai:x", *words)
        assert result.exit_code == 2
        assert sentence in result.stderr
