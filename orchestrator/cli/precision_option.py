"""Option `--precision` of commands in which a trained model answers."""

import click

precision_option = click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="Arithmetic of the model; bf16 is faster on a GPU, and rounds.",
)
