"""Which tokens of a vocabulary go on with the word before them, for masking in whole words.

WordPiece marks such a token itself, with "##"; byte-level BPE ("Ġ") and Unigram ("▁") mark the tokens that follow a
space, and every other one goes on: also punctuation, and the first token of a text that is given no space in front.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import TokenizerError

CONTINUATION_MARK = "##"
SPACE_MARKS = ("Ġ", "▁")


def continues_word(vocabulary: Sequence[str], special_ids: Collection[int]) -> NDArray[np.bool_]:
    """For each token of a vocabulary, by id, whether it goes on with a word: (V,). Special tokens never do.

    The mark that most tokens bear is the vocabulary's: "##" may be text to a byte-level BPE.

    Raises: TokenizerError when none of the three marks occurs.
    """
    marked = {
        mark: np.array([token.startswith(mark) for token in vocabulary], bool)
        for mark in (CONTINUATION_MARK, *SPACE_MARKS)
    }
    mark = max(marked, key=lambda mark: int(marked[mark].sum()))
    if not marked[mark].any():
        raise TokenizerError(
            f"none of the {len(vocabulary)} tokens begins with {CONTINUATION_MARK}, {' or '.join(SPACE_MARKS)}: the "
            'vocabulary does not tell where words begin; mask in units of "token", or use another tokenizer'
        )
    continues = marked[mark] if mark == CONTINUATION_MARK else ~marked[mark]
    continues[list(special_ids)] = False
    return continues
