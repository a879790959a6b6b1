"""What a job is made of. Alone: pytest tests/orchestrator/pretraining/test_job.py"""

from pathlib import Path

import pytest
import torch

from bert_core.errors import ConfigError, TokenizerError
from bert_core.heads import BertForPreTraining
from bert_core.objectives import TOKEN_OBJECTIVES
from bert_core.objectives.masked_lm import MaskedLM
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.models.config import build_config
from orchestrator.pretraining.job import build_model, check_start
from orchestrator.specs import ModelSpec, PretrainSpec
from tests.orchestrator.pretraining.small_run import make_job, make_tokenizer


def spec(**changes: object) -> PretrainSpec:
    return PretrainSpec(corpus={"files": ["x"]}, tokenizer="x", **({"steps": 5} | changes))


def test_a_model_is_continued_with_its_own_vocabulary_only(tmp_path: Path) -> None:
    own, other = make_tokenizer(), train_wordpiece(["quite another text"] * 3, vocab_size=60, min_frequency=1)
    assert other.vocab_size <= own.vocab_size
    config = build_config(ModelSpec(hidden_size=32), own.vocab_size)
    BertForPreTraining(config).save_pretrained(tmp_path)
    check_start(str(tmp_path), other)  # nothing is known against it
    own.save(tmp_path)
    check_start(str(tmp_path), own)
    with pytest.raises(TokenizerError, match="is not the checkpoint's"):
        check_start(str(tmp_path), other)


class CausalLM(MaskedLM):
    """An objective whose tokens must not see those behind them."""

    is_causal = True


def test_the_token_objective_decides_whether_attention_is_causal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_ways = build_model(make_job(tmp_path))
    both_ways.save_pretrained(tmp_path / "model")
    jobs = [make_job(tmp_path), make_job(tmp_path, init_folder=str(tmp_path / "model"))]
    assert [build_model(job).config.causal_attention for job in jobs] == [False, False]
    monkeypatch.setitem(TOKEN_OBJECTIVES, "masked_lm", CausalLM())  # type: ignore[arg-type]
    models = [build_model(job) for job in jobs]
    assert [model.config.causal_attention for model in models] == [True, True]
    assert models[1].state_dict().keys() == both_ways.state_dict().keys()
    assert all(torch.equal(value, both_ways.state_dict()[name]) for name, value in models[1].state_dict().items())


def test_sizes_can_be_changed_number_by_number() -> None:
    config = build_config(ModelSpec(size="mini", num_hidden_layers=2, hidden_size=128), vocab_size=500)
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (2, 128, 2)
    assert config.intermediate_size == 512
    with pytest.raises(ConfigError, match="num_attention_heads"):
        build_config(ModelSpec(num_attention_heads=3), vocab_size=500)


def test_phases_share_all_steps() -> None:
    tenths = tuple({"share": 0.1} for _ in range(10))
    assert sum(steps for _, steps in spec(steps=6, phases=tenths).phase_steps()) == 6
    assert min(steps for _, steps in spec(steps=6, phases=tenths).phase_steps()) >= 0
    assert spec(steps=100, phases=({"share": 0.9}, {"share": 0.1, "max_seq_length": 512})).phase_steps() == (
        (128, 90),
        (512, 10),
    )
