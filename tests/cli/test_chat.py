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
