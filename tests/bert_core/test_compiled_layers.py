"""Layers that are compiled, or whose inside backward computes again: the same numbers, the same names, less memory.

Run alone: pytest tests/bert_core/test_compiled_layers.py
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd.graph import saved_tensors_hooks

import bert_core.attention
from bert_core.attention import BACKENDS
from bert_core.attention.positions import Positions
from bert_core.compiled_layers import compile_layers, restore_layers
from bert_core.heads import BertForPreTraining
from bert_core.heads.replaced_tokens import GeneratorAndDiscriminator, generator_config
from bert_core.model import BertModel, EncoderLayer
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import ragged_batch, scattered, small_config

CHOICES: dict[str, dict[str, Any]] = {
    "bert": {},
    "albert": {"num_hidden_groups": 1, "embedding_size": 12, "relative_attention_num_buckets": 4},
    "deberta": {"position_embedding_type": "disentangled", "position_buckets": 4, "share_att_key": False},
    "pre_norm": {"norm_placement": "pre", "feed_forward": "gated", "position_embedding_type": "rotary"},
    "eurobert": {"norm_placement": "pre", "norm": "rms", "embedding_norm": False, "num_key_value_heads": 1},
    "modernbert": {"norm_placement": "pre", "first_norm": False, "local_window": 4},
}
REGIONS = 3
Inputs = tuple[Tensor, PackedSequences, Positions]
ROWS = torch.tensor([0, 5])
pytestmark = pytest.mark.filterwarnings("default")  # the compiler hides its own warnings, which as errors it cannot


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def small_model(dropout: float = 0.0, **changes: Any) -> BertForPreTraining:
    config = small_config(num_hidden_layers=3, **changes).with_dropout(dropout)
    return BertForPreTraining.from_config(config, seed=3).train()


def gradients(model: BertForPreTraining, width: int = 12) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of a batch, with dropout from a fixed seed."""
    torch.manual_seed(11)
    batch = ragged_batch(model.config, [9, 4, width], width)
    model.zero_grad()
    loss = model(**batch, labels=batch["input_ids"], next_sentence_label=torch.tensor([0, 1, 0])).loss
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.slow
@pytest.mark.parametrize("choice", list(CHOICES))
def test_graphs_are_whole_and_give_the_same_bits_without_fusion(choice: str) -> None:
    """`fullgraph` makes a break in a graph an error; the compiler that is tried here only runs the graph."""
    model = small_model(**CHOICES[choice])
    expected = gradients(model)
    compile_layers(model.bert, backend="aot_eager", num_first_rows=64)
    loss, found = gradients(model)
    assert loss == expected[0]
    assert all(torch.equal(found[name], gradient) for name, gradient in expected[1].items())


@pytest.mark.slow
def test_one_graph_serves_all_layers_and_lengths_and_is_made_beforehand() -> None:
    model = small_model(dropout=0.1)
    counter = CompileCounterWithBackend("eager")
    compile_layers(model.bert, backend=counter, num_first_rows=64)
    num_graphs = counter.frame_count
    assert num_graphs <= 2 * (REGIONS + 1), "one to train and one to evaluate; another where rows are chosen"
    for width in (12, 13, 20):
        gradients(model, width)
    model.eval()
    with torch.no_grad():
        model.bert.encode(model.bert.pack(torch.ones(2, 7, dtype=torch.int64)), torch.tensor([0, 3]))
    assert counter.frame_count == num_graphs


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["fp32 residual", "bf16 residual"])
def test_autocast_and_layers_computed_again_need_no_other_graphs(dtype: torch.dtype | None) -> None:
    model = small_model(dropout=0.2)
    model.bert.residual_dtype = dtype
    counter = CompileCounterWithBackend("aot_eager")
    compile_layers(model.bert, torch.bfloat16, backend=counter, num_first_rows=64)
    num_graphs = counter.frame_count
    results = []
    for recomputes in (False, True):
        model.bert.recomputes_layers = recomputes
        with torch.autocast("cpu", torch.bfloat16):
            results.append(gradients(model))
    (loss, kept), (again, recomputed) = results
    assert loss == again
    assert all(torch.equal(kept[name], recomputed[name]) for name in kept)
    assert counter.frame_count == num_graphs


@pytest.mark.heavy
def test_names_of_weights_stay_and_so_do_random_numbers_and_gradients() -> None:
    model = small_model(dropout=0.1)
    names = list(model.state_dict())
    torch.manual_seed(5)
    state = torch.get_rng_state()
    compile_layers(model.bert, backend="eager", num_first_rows=64)
    assert list(model.state_dict()) == names
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.heavy
def test_an_encoder_without_embeddings_of_its_own_is_compiled() -> None:
    config = small_config(num_hidden_layers=1)
    bert = GeneratorAndDiscriminator(config, generator=generator_config(config, 1.0)).bert
    assert not list(bert.embeddings.parameters())
    compile_layers(bert, backend="eager", num_first_rows=64)


def test_a_compiler_that_fails_leaves_the_layers_as_they_were() -> None:
    def fails(*_: Any) -> Any:
        raise NotImplementedError("no compiler here")

    model = small_model()
    expected = gradients(model)
    with pytest.raises(Exception, match="no compiler here"):
        compile_layers(model.bert, backend=fails, num_first_rows=64)
    assert gradients(model)[0] == expected[0]


_PROGRAM = """
import torch
from tests.bert_core.test_compiled_layers import compile_layers, gradients, small_model
model = small_model(dropout={dropout})
compile_layers(model.bert, num_first_rows=64)
for width in {widths}:
    loss, found = gradients(model, width)
print(loss.hex(), *(float(gradient.double().sum()).hex() for gradient in found.values()))
"""


def in_a_fresh_process(cache: str, widths: tuple[int, ...], dropout: float) -> str:
    program = f"import os; os.environ['TORCHINDUCTOR_CACHE_DIR'] = {cache!r}\n" + _PROGRAM
    command = [sys.executable, "-c", program.format(widths=widths, dropout=dropout)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800).stdout


@pytest.mark.slow
def test_compiled_kernels_agree_with_the_layers_as_written() -> None:
    model = small_model()
    expected = gradients(model)
    compile_layers(model.bert, num_first_rows=64)
    loss, found = gradients(model)
    assert loss == pytest.approx(expected[0], abs=1e-5)
    for name, gradient in expected[1].items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4)
    restore_layers(model.bert)
    assert gradients(model)[0] == expected[0]


@pytest.mark.slow
def test_fresh_processes_come_to_the_same_bits_whatever_they_saw(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each with a cache of its own, so that both compile; one has seen other lengths before."""
    folders = [str(tmp_path_factory.mktemp("cache")) for _ in range(2)]
    first = in_a_fresh_process(folders[0], (20, 13, 12), dropout=0.2)
    assert first == in_a_fresh_process(folders[1], (12,), dropout=0.2)
    assert first == in_a_fresh_process(folders[0], (12,), dropout=0.2), "from the cache"


@pytest.mark.parametrize("choice", list(CHOICES))
def test_layers_computed_again_give_the_same_bits_with_dropout(choice: str) -> None:
    model = small_model(dropout=0.2, **CHOICES[choice])
    loss, kept = gradients(model)
    model.bert.recomputes_layers = True
    again, recomputed = gradients(model)
    assert loss == again
    assert kept.keys() == recomputed.keys()
    assert all(torch.equal(kept[name], recomputed[name]) for name in kept)


def test_only_what_goes_into_a_layer_is_kept() -> None:
    """Bytes that backward waits for, of an encoder with six layers."""
    config = small_config(num_hidden_layers=6, intermediate_size=96).with_dropout(0.1)
    batch = ragged_batch(config, [24] * 8, 24)
    num_bytes = {}
    for recomputes in (False, True):
        model = BertForPreTraining.from_config(config).train()
        model.bert.recomputes_layers = recomputes
        weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        kept: dict[int, Tensor] = {}

        def keep(tensor: Tensor, kept: dict[int, Tensor] = kept, weights: set[int] = weights) -> Tensor:
            if tensor.untyped_storage().data_ptr() not in weights:
                kept[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no other tensor gets its place
            return tensor

        seqs = model.bert.pack(batch["input_ids"], batch["attention_mask"])
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            hidden = model.bert.encode(seqs)
        num_bytes[recomputes] = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
        if recomputes:  # torch keeps the inputs of layers beside what the hooks see
            num_bytes[recomputes] += config.num_hidden_layers * hidden.nbytes
    assert num_bytes[True] < 0.25 * num_bytes[False]


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
    return layer, (x.detach(), seqs, positions[0])


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("reference", {}),
        ("fused", CHOICES["pre_norm"]),
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
