"""Examples laid out from segments. Alone: pytest tests/bert_core/examples/test_segments.py"""

import numpy as np
import pytest

from bert_core.examples.segments import TokenizedDocuments, lay_out
from tests.bert_core.small_documents import all_examples, documents

CLS, SEP = 2, 3


@pytest.mark.parametrize(
    ("objective", "cross"), [("next_sentence", False), ("sentence_order", False), ("none", False), ("none", True)]
)
def test_examples_are_laid_out_as_bert_reads_them(objective: str, cross: bool) -> None:
    docs = documents()
    _, segments = all_examples(docs, objective=objective, cross_documents=cross)
    laid = lay_out(docs, segments, cls_id=CLS, sep_id=SEP)
    for row, (begin, end) in enumerate(zip(laid.cu_seqlens[:-1], laid.cu_seqlens[1:], strict=True)):
        ids, types = [CLS], [0]
        for number, place in enumerate(range(*segments.example_offsets[row : row + 2])):
            part = docs.tokens[segments.starts[place] :][: segments.lengths[place]].tolist()
            ids += [*part, SEP]
            types += [number if segments.is_pairs else 0] * (len(part) + 1)
        assert laid.input_ids[begin:end].tolist() == ids
        assert laid.token_type_ids[begin:end].tolist() == types
        assert (laid.is_special[begin:end] == np.isin(ids, [CLS, SEP])).all()


def test_documents_concatenate_in_order() -> None:
    first, second = documents(5, 1), documents(7, 2)
    both = TokenizedDocuments.concatenate([first, second])
    assert both.num_documents == 12
    assert np.diff(both.document_ends).tolist() == [*np.diff(first.document_ends), *np.diff(second.document_ends)]
