"""`handrail completion`: the script that teaches a shell our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PLACES = {
    "bash": 'eval "$(handrail completion bash)"     # in ~/.bashrc',
    "zsh": 'eval "$(handrail completion zsh)"      # in ~/.zshrc',
    "fish": "handrail completion fish > ~/.config/fish/completions/handrail.fish",
}


@click.command(
    "completion",
    epilog="\b\nWhere it goes:\n"
    + "\n".join(f"  {place}" for place in _PLACES.values()),
)
@click.argument("shell", type=click.Choice(list(_PLACES)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    Example:
      handrail completion bash
    """
    completion = get_completion_class(shell)
    assert completion is not None  # click knows the three
    script = completion(
        context.find_root().command, {}, "handrail", "_HANDRAIL_COMPLETE"
    ).source()
    # Where handrail has no completion, as after `openapi:`, bash completes files.
    click.echo(
        script.replace(
            "complete -o nosort", "complete -o nosort -o bashdefault -o default"
        )
    )
