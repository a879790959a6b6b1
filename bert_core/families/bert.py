"""BERT (Devlin et al. 2018): also its multilingual models, HerBERT and SpanBERT: other texts, other objectives."""

from bert_core.families.family import Family

EMBEDDINGS: dict[str, str | tuple[str, ...]] = {
    r"embeddings\.(word|position|token_type)\.": r"embeddings.\1_embeddings.",
    r"embeddings\.norm\.": "embeddings.LayerNorm.",
}

LAYERS: dict[str, str | tuple[str, ...]] = {
    r"layers\.(\d+)\.qkv\.": tuple(rf"encoder.layer.\1.attention.self.{part}." for part in ("query", "key", "value")),
    r"layers\.(\d+)\.attention_output\.": r"encoder.layer.\1.attention.output.dense.",
    r"layers\.(\d+)\.attention_norm\.": r"encoder.layer.\1.attention.output.LayerNorm.",
    r"layers\.(\d+)\.intermediate\.": r"encoder.layer.\1.intermediate.dense.",
    r"layers\.(\d+)\.output\.": r"encoder.layer.\1.output.dense.",
    r"layers\.(\d+)\.output_norm\.": r"encoder.layer.\1.output.LayerNorm.",
}

BERT = Family(
    model_type="bert",
    class_prefix="Bert",
    prefix="bert.",
    weights={
        **EMBEDDINGS,
        **LAYERS,
        r"pooler\.": "pooler.dense.",
        r"prediction\.transform\.": "cls.predictions.transform.dense.",
        r"prediction\.norm\.": "cls.predictions.transform.LayerNorm.",
        r"prediction\.bias$": "cls.predictions.bias",
        r"next_sentence\.": "cls.seq_relationship.",
    },
    required={"position_embedding_type": "absolute"},
    tied_weights={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
