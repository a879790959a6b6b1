"""Attention of every backend against its definition, rotary positions, linear biases and scores by distance.

Alone: pytest tests/bert_core/attention/test_attention.py
"""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from bert_core.attention import BACKENDS, attention, choose_backend, varlen
from bert_core.attention.backend import AttentionBackend, AttentionCall, AttentionOptions
from bert_core.attention.positions import (
    DistanceVectors,
    Positions,
    alibi_slopes,
    apply_rotary,
    distance_rows,
    relative_buckets,
    rotation,
)
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import rotated_by_definition, small_config

# Several groups, and several widths of groups.
SHORT = st.lists(st.integers(1, 9), min_size=1, max_size=20)
LONG = st.lists(st.integers(14, 50), min_size=1, max_size=4)
ON_CPU = [backend for backend in BACKENDS if backend.name != "varlen"]
"""Backends that can be run here: varlen needs CUDA."""


def packed(lengths: list[int]) -> PackedSequences:
    tokens = torch.zeros(sum(lengths))
    cu_seqlens = torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0))
    return PackedSequences.from_lengths(tokens, tokens, cu_seqlens)


def projections(num_tokens: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(num_tokens)
    qkv = torch.randn(num_tokens, 3, 2, 4, dtype=dtype, generator=generator).requires_grad_()
    return list(qkv.unbind(1))


def by_definition(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: list[int],
    options: AttentionOptions,
) -> torch.Tensor:
    """One sequence and one head at a time."""
    _, slopes, is_causal, window, bias, distances = options
    rows = []
    for q_s, k_s, v_s in zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True):
        places = torch.arange(len(q_s), dtype=q.dtype)
        heads = []
        for n in range(q.shape[1]):
            scores = (q_s[:, n] @ k_s[:, n].T) / math.sqrt(q.shape[-1])
            if bias is not None:
                scores = scores + bias[n, : len(q_s), : len(q_s)]
            if distances is not None:
                among = distances.rows[: len(q_s), : len(q_s)]
                if distances.keys is not None:
                    scores = scores + torch.einsum("id,ijd->ij", q_s[:, n], distances.keys[n][among])
                if distances.queries is not None:
                    scores = scores + torch.einsum("jd,ijd->ij", k_s[:, n], distances.queries[n][among])
            if slopes is not None:
                scores = scores - slopes[n] * (places[:, None] - places).abs()
            if is_causal:
                scores = torch.where(places <= places[:, None], scores, -math.inf)
            if window is not None:
                scores = torch.where((places - places[:, None]).abs() <= window, scores, -math.inf)
            heads.append(scores.softmax(-1) @ v_s[:, n])
        rows.append(torch.stack(heads, dim=1))
    return torch.cat(rows)


def random_distances(longest: int, terms: str) -> DistanceVectors:
    generator = torch.Generator().manual_seed(1)
    keys, queries = (
        torch.randn(2, 12, 4, dtype=torch.float64, generator=generator).requires_grad_() if term in terms else None
        for term in ("c2p", "p2c")
    )
    return DistanceVectors(keys, queries, distance_rows(longest, 6, 9, torch.device("cpu")))


@pytest.mark.parametrize("backend", ON_CPU, ids=lambda backend: backend.name)
@settings(deadline=None, max_examples=30)
@given(
    SHORT | LONG,
    st.sampled_from([None, torch.tensor([0.5, 0.25])]),
    st.booleans(),
    st.sampled_from([None, 0, 3]),
    st.booleans(),
    st.sampled_from(["", "c2p", "p2c", "c2p|p2c"]),
)
def test_backends_follow_the_definition_in_values_and_gradients(
    backend: AttentionBackend,
    lengths: list[int],
    slopes: torch.Tensor | None,
    is_causal: bool,
    window: int | None,
    has_bias: bool,
    terms: str,
) -> None:
    longest = max(lengths)
    bias = torch.randn(2, longest, longest, generator=torch.Generator().manual_seed(0)).requires_grad_()
    distances = random_distances(longest, terms) if terms else None
    options = AttentionOptions(0.0, slopes, is_causal, window, bias if has_bias else None, distances)
    vectors = () if distances is None else (distances.keys, distances.queries)
    learned = [tensor for tensor in (options.bias, *vectors) if tensor is not None]
    results = []
    for function in (
        lambda *qkv: backend(*qkv, packed(lengths), options),
        lambda *qkv: by_definition(*qkv, lengths, options),
    ):
        qkv = projections(sum(lengths))
        context = function(*qkv)
        gradients = torch.autograd.grad(context.square().sum(), (*qkv, *learned))
        results.append((context, *gradients))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.heavy
def test_gradient_with_dropout_is_that_of_the_values() -> None:
    qkv = [tensor.detach().requires_grad_() for tensor in projections(9)]
    seqs = packed([3, 6])

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)  # the same dropout in every evaluation
        return attention(*inputs, seqs, AttentionOptions(dropout_p=0.4))

    assert torch.autograd.gradcheck(run, qkv)


@pytest.mark.parametrize("length", [4, 40])
def test_sequence_is_independent_of_its_neighbors(length: int) -> None:
    q, k, v = projections(2 * length)
    together = attention(q, k, v, packed([length, length]), AttentionOptions())
    alone = attention(q[:length], k[:length], v[:length], packed([length]), AttentionOptions())
    torch.testing.assert_close(together[:length], alone)


@pytest.mark.parametrize("backend", ON_CPU, ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_later_layers_take_the_biases_of_the_first(backend: AttentionBackend, dtype: torch.dtype) -> None:
    """Whatever else has been built for the batch before, each call gives the bits that it gives to a new batch."""
    slopes, steeper = torch.tensor([0.5, 0.25]), torch.tensor([1.0, 0.125])
    q, k, v = (tensor.detach() for tensor in projections(9, dtype))
    bias = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0))
    near = random_distances(5, "c2p|p2c")
    near = near._replace(keys=near.keys.to(dtype), queries=near.queries.to(dtype))
    choices = itertools.product((None, slopes, steeper), (False, True), (None, 1), (None, bias), (None, near))
    calls = [AttentionOptions(0.0, *choice) for choice in choices]
    shared = packed([4, 5])
    for call in calls * 2:
        assert backend(q, k, v, shared, call).equal(backend(q, k, v, packed([4, 5]), call))
    built = list(shared.attention_cache)
    for call in calls:
        backend(q, k, v, shared, call)
    assert list(shared.attention_cache) == built


def test_a_batch_that_inference_has_seen_can_be_trained_on() -> None:
    config = small_config(position_embedding_type="rotary")
    model, seqs = BertModel.from_config(config), packed([4, 5])
    with torch.inference_mode():
        model.encode(seqs)
    hidden = model.encode(seqs)
    gradient = torch.autograd.grad(hidden.square().sum(), model.layers[0].qkv.weight)[0]
    assert bool(gradient.isfinite().all())


def test_kept_padding_looks_but_is_not_looked_at() -> None:
    seqs = PackedSequences.from_padded(torch.ones(1, 4), torch.tensor([[1, 1, 1, 0]]), keep_padding=True)
    q, k, v = projections(4)
    with_padding = attention(q, k, v, seqs, AttentionOptions())
    torch.testing.assert_close(with_padding[:3], attention(q[:3], k[:3], v[:3], packed([3]), AttentionOptions()))
    assert bool(with_padding[3].any())


def test_kept_padding_that_is_near_to_no_token_attends_to_nothing() -> None:
    seqs = PackedSequences.from_padded(torch.ones(1, 4), torch.tensor([[1, 1, 0, 0]]), keep_padding=True)
    qkv = projections(4)
    context = attention(*qkv, seqs, AttentionOptions(window=1))
    torch.testing.assert_close(context[2], qkv[2][1])
    assert not bool(context[3].any())
    assert all(bool(gradient.isfinite().all()) for gradient in torch.autograd.grad(context.sum(), qkv))


def test_a_window_over_all_of_a_sequence_is_none() -> None:
    qkv, seqs = projections(9), packed([4, 5])
    assert attention(*qkv, seqs, AttentionOptions(window=4)).equal(attention(*qkv, seqs, AttentionOptions()))
    built = list(seqs.attention_cache)
    attention(*qkv, seqs, AttentionOptions(window=7))
    assert list(seqs.attention_cache) == built


@pytest.mark.parametrize("length", [8, 32])
@pytest.mark.heavy
def test_dropout_keeps_the_mean_and_is_drawn_from_the_global_seed(length: int) -> None:
    q, k, v = (tensor.detach() for tensor in projections(length))
    seqs = packed([length])
    torch.manual_seed(0)
    draws = torch.stack([attention(q, k, v, seqs, AttentionOptions(dropout_p=0.3)) for _ in range(1000)])
    torch.testing.assert_close(draws.mean(0), attention(q, k, v, seqs, AttentionOptions()), atol=0.1, rtol=0)
    torch.manual_seed(0)
    assert torch.equal(attention(q, k, v, seqs, AttentionOptions(dropout_p=0.3)), draws[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_stay_close_to_the_full_result(dtype: torch.dtype) -> None:
    q, k, v = projections(12, torch.float32)
    full = attention(q, k, v, packed([5, 7]), AttentionOptions())
    short = attention(q.to(dtype), k.to(dtype), v.to(dtype), packed([5, 7]), AttentionOptions())
    assert short.dtype == dtype
    torch.testing.assert_close(short.float(), full, atol=0.02, rtol=0.02)


HALF, FULL = torch.bfloat16, torch.float32
VARLEN_CALL = AttentionCall("cuda", HALF, compute_capability=(9, 0))


@pytest.mark.parametrize(
    "changes", [{}, {"is_causal": True}, {"head_size": 256}, {"compute_capability": (8, 0)}, {"dropout_p": 0.1}]
)
def test_varlen_is_chosen_on_cuda_in_sixteen_bits(changes: dict[str, Any]) -> None:
    assert choose_backend(replace(VARLEN_CALL, **changes)).name == "varlen"


@pytest.mark.parametrize(
    "changes",
    [
        {"compute_capability": (7, 5)},
        {"dtype": FULL},
        {"head_size": 12},
        {"head_size": 264},
        {"has_slopes": True},
        {"has_bias": True},
        {"includes_padding": True},
    ],
)
def test_what_varlen_cannot_do_goes_to_the_fused_kernels(changes: dict[str, Any]) -> None:
    assert choose_backend(replace(VARLEN_CALL, **changes)).name == "fused"


def test_where_the_kernel_does_not_run_dropout_goes_to_the_fused_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "_flash_attention_runs", lambda: False)
    assert choose_backend(replace(VARLEN_CALL, dropout_p=0.1)).name == "fused"
    assert choose_backend(VARLEN_CALL).name == "varlen"


def test_a_call_is_described_by_its_arguments() -> None:
    q = torch.zeros(5, 2, 8, dtype=HALF)
    options = AttentionOptions(0.1, torch.ones(2), is_causal=True, distances=random_distances(3, "c2p"))
    call = AttentionCall.of(q, packed([2, 3]), options)
    assert call == AttentionCall("cpu", HALF, 0.1, has_slopes=True, has_bias=True, is_causal=True, head_size=8)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (AttentionCall("cpu", FULL), "grouped"),
        (AttentionCall("cpu", FULL, is_causal=True), "grouped"),
        (AttentionCall("cpu", HALF, dropout_p=0.1, has_slopes=True), "grouped"),
        (AttentionCall("cpu", FULL, includes_padding=True), "reference"),
    ],
)
def test_the_first_backend_that_is_fit_for_a_call_is_chosen(call: AttentionCall, name: str) -> None:
    assert choose_backend(call).name == name


@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_rotary_rotates_pairs_by_their_angle(base: float) -> None:
    config = small_config(position_embedding_type="rotary", rotary_base=base)
    x = torch.randn(3, 2, config.head_size, generator=torch.Generator().manual_seed(0))
    position_ids = torch.tensor([0, 5, 17])
    rotated = apply_rotary(x, rotation(position_ids, config.head_size, base))
    for token, position in enumerate(position_ids.tolist()):
        for head in range(2):
            expected = rotated_by_definition(x[token, head].tolist(), position, base)
            assert rotated[token, head].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("base", [None, 500.0])
def test_layers_but_every_third_are_local_with_a_base_of_their_own(base: float | None) -> None:
    config = small_config(
        position_embedding_type="rotary", num_hidden_layers=5, local_window=4, global_every=3, local_rotary_base=base
    )
    seqs = packed([4, 5])
    positions = Positions.of_layers(config, seqs)
    assert [place.window for place in positions] == [None, 2, 2, None, 2]
    for place, expected in zip(positions[:2], (config.rotary_base, base or config.rotary_base), strict=True):
        assert place.rotation is not None
        assert place.rotation[0].equal(rotation(seqs.position_ids, config.head_size, expected)[0])


@pytest.mark.parametrize("num_buckets", [4, 10, 32])
def test_distances_have_the_buckets_of_transformers(num_buckets: int) -> None:
    places = torch.arange(300)
    expected = MPNetEncoder.relative_position_bucket(places - places[:, None], num_buckets=num_buckets)
    assert relative_buckets(300, num_buckets, torch.device("cpu")).equal(expected)


@pytest.mark.parametrize(("num_buckets", "farthest"), [(None, 7), (None, 400), (3, 9), (8, 300), (64, 128), (256, 512)])
def test_distances_have_the_rows_of_transformers(num_buckets: int | None, farthest: int) -> None:
    for length in (5, 600):
        places, reach = torch.zeros(length, 1), min(num_buckets or farthest, length)
        expected = build_relative_position(places, places, num_buckets or -1, farthest)[0] + reach
        rows = distance_rows(length, num_buckets, farthest, torch.device("cpu"))
        assert rows.equal(expected.clamp(0, 2 * reach - 1))


def test_slopes_of_eight_and_of_twelve_heads_are_those_of_the_paper() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-power for power in range(1, 9)]
    twelve = alibi_slopes(12).tolist()
    assert twelve[:8] == alibi_slopes(8).tolist()
    assert twelve[8:] == pytest.approx([2 ** (-power / 2) for power in (1, 3, 5, 7)])
