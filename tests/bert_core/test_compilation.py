"""A layer as torch.compile sees it: one graph. Alone: pytest tests/bert_core/test_compilation.py

Graphs are traced and run as they are (`backend="eager"`), so that no compiler is needed.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor

import bert_core.attention
from bert_core.attention import BACKENDS
from bert_core.attention.positions import Positions
from bert_core.model import BertModel, EncoderLayer
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import ragged_batch, scattered, small_config

Inputs = tuple[Tensor, PackedSequences, Positions]
ROWS = torch.tensor([0, 5])
MODERN = {"model_type": "bert_core", "norm_placement": "pre", "feed_forward": "gated"}


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Send all attention to a backend."""

    def send(name: str) -> None:
        backend = next(backend for backend in BACKENDS if backend.name == name)
        monkeypatch.setattr(bert_core.attention, "choose_backend", lambda call: backend)

    return send


def layer_and_inputs(lengths: list[int], **choices: Any) -> tuple[EncoderLayer, Inputs]:
    model = scattered(BertModel.from_config(small_config(**choices))).eval()
    assert isinstance(model, BertModel)
    seqs = model.pack(**ragged_batch(model.config, lengths, max(lengths)))
    x, positions = model.embed(seqs)
    layer = model.layers[0]
    assert isinstance(layer, EncoderLayer)
    return layer, (x.detach(), seqs, positions)


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("reference", {}),
        ("fused", MODERN | {"position_embedding_type": "rotary"}),
        ("fused", {"model_type": "bert_core", "position_embedding_type": "alibi"}),
    ],
)
@pytest.mark.heavy
def test_a_layer_is_one_graph_with_the_results_of_the_layer(
    name: str, choices: dict[str, Any], force: Callable[[str], None]
) -> None:
    force(name)
    layer, inputs = layer_and_inputs([4, 7], **choices)
    found = torch.compile(layer, backend="eager", fullgraph=True)(*inputs, ROWS)
    # Up to rounding: a compiled layer takes PyTorch's products, also where a processor has faster ones.
    torch.testing.assert_close(found, layer(*inputs, ROWS), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch traces its gradient so
@pytest.mark.heavy
def test_grouped_attention_breaks_the_graph_only_to_build_its_layout(force: Callable[[str], None]) -> None:
    force("grouped")
    layer, inputs = layer_and_inputs([4, 7])
    expected = layer(*inputs)  # the layout is there now
    assert torch.compile(layer, backend="eager", fullgraph=True)(*inputs).equal(expected)


@pytest.mark.skipif(find_spec("torch.nn.attention.varlen") is None, reason="this PyTorch has no varlen attention")
def test_varlen_attention_is_an_operator_in_the_graph(force: Callable[[str], None]) -> None:
    """It is traced by the shape rule of its operator, which runs on CUDA only: the graph is looked at, and not run."""
    force("varlen")
    layer, inputs = layer_and_inputs([4, 7])
    seen: list[str] = []

    def look(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., tuple[Tensor]]:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return lambda *args: (torch.zeros_like(inputs[0]),)

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.compile(layer, backend=look, fullgraph=True)(*inputs)
    assert sum("_varlen_attn" in name for name in seen) == 1
