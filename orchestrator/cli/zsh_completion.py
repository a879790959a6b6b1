"""Completion in zsh, where the cursor stays behind a word that is not whole yet.

click has zsh put a space behind each completed word. `recipe.epochs=` still wants its value.
"""

from click.shell_completion import ZshComplete, add_completion_class

_LOOP = "    for type key descr in ${response}; do\n"
_DESCRIBED = "_describe -V unsorted completions_with_descriptions -U"
_PLAIN = "compadd -U -V unsorted -a completions"


class ZshWords(ZshComplete):
    """zsh's completion, without a space behind words that end in `=`."""

    source_template = (
        ZshComplete.source_template.replace(
            _LOOP, f'    local -a suffix\n{_LOOP}        [[ "$key" == *= ]] && suffix=(-S "")\n'
        )
        .replace(_DESCRIBED, f'{_DESCRIBED} "${{suffix[@]}}"')
        .replace(_PLAIN, 'compadd -U -V unsorted "${suffix[@]}" -a completions')
    )


def add_zsh() -> None:
    """Have click answer zsh in this way."""
    for part in (_LOOP, _DESCRIBED, _PLAIN):
        assert part in ZshComplete.source_template, "click's script has changed"
    add_completion_class(ZshWords)
