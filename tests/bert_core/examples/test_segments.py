"""Examples laid out from segments. Alone: pytest tests/bert_core/examples/test_segments.py"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.examples.segments import TokenizedDocuments, lay_out
from bert_core.text.segment_layout import SegmentLayout
from tests.bert_core.small_documents import BERT, ROBERTA, all_examples, documents

LAYOUTS = (BERT, ROBERTA, SegmentLayout(prefix=7, between=(8, 9, 6), suffix=5, type_of_second=1))


@given(
    st.sampled_from(LAYOUTS),
    st.sampled_from([("next_sentence", False), ("sentence_order", False), ("none", False), ("none", True)]),
    st.integers(2, 20),
    st.integers(8, 100),
    st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_examples_are_laid_out_token_by_token(
    layout: SegmentLayout, objective: tuple[str, bool], num_documents: int, length: int, seed: int
) -> None:
    docs = documents(num_documents, seed)
    _, segments = all_examples(docs, length, objective[0], layout=layout, cross_documents=objective[1])
    laid = lay_out(docs, segments, layout)
    assert np.diff(laid.cu_seqlens).max() <= length
    for row, (begin, end) in enumerate(zip(laid.cu_seqlens[:-1], laid.cu_seqlens[1:], strict=True)):
        ids, types = [layout.prefix], [0]
        places = range(*segments.example_offsets[row : row + 2])
        for place in places:
            part = docs.tokens[segments.starts[place] :][: segments.lengths[place]].tolist()
            closing = layout.between if segments.is_pairs and place != places[-1] else (layout.suffix,)
            ids += [*part, *closing]
            second = segments.is_pairs and place == places[-1]
            types += [layout.type_of_second * second] * (len(part) + len(closing))
        assert laid.input_ids[begin:end].tolist() == ids
        assert laid.token_type_ids[begin:end].tolist() == types
        assert (laid.is_special[begin:end] == (np.array(ids) < 10)).all()


def test_documents_concatenate_in_order() -> None:
    first, second = documents(5, 1), documents(7, 2)
    both = TokenizedDocuments.concatenate([first, second])
    assert both.num_documents == 12
    assert np.diff(both.document_ends).tolist() == [*np.diff(first.document_ends), *np.diff(second.document_ends)]
