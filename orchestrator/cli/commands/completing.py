"""Command `completion`: the script by which a shell completes words of this command."""

import click
from click.shell_completion import get_completion_class

from orchestrator.cli.completion import COMPLETION_VARIABLE
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.output import show_text


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator completion bash >> ~/.bashrc\norchestrator completion zsh >> ~/.zshrc",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes words in a shell.

    Add it to the shell's startup file as below, and open a new terminal. Then the Tab key completes commands and
    options, ids of runs, models, tasks, measurements and fields of specs (`orchestrator run SPEC.yaml recipe.` and
    Tab). zsh needs its own completion switched on before that line (`autoload -U compinit; compinit`); fish reads the
    file ~/.config/fish/completions/orchestrator.fish.
    """
    complete = get_completion_class(shell)
    assert complete is not None, "click knows the shells that this command takes"
    show_text(
        complete(click.get_current_context().find_root().command, {}, "orchestrator", COMPLETION_VARIABLE).source()
    )
