"""The families of models that can be loaded and saved; a new one is a file and a line in this list."""

from bert_core.families.albert import ALBERT
from bert_core.families.bert import BERT
from bert_core.families.deberta import DEBERTA
from bert_core.families.distilbert import DISTILBERT
from bert_core.families.electra import ELECTRA
from bert_core.families.eurobert import EUROBERT
from bert_core.families.family import ENCODER, Family
from bert_core.families.flaubert import FLAUBERT
from bert_core.families.gte import GTE
from bert_core.families.modernbert import MODERNBERT
from bert_core.families.native import MODERN, NATIVE
from bert_core.families.neobert import NEOBERT
from bert_core.families.nomic_bert import NOMIC_BERT
from bert_core.families.roberta import CAMEMBERT, MPNET, ROBERTA, XLM_ROBERTA

__all__ = ["ENCODER", "FAMILIES", "FAMILY_NAMES", "FORMER_TYPES", "MODERN", "NATIVE", "Family"]

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        BERT,
        ROBERTA,
        CAMEMBERT,
        XLM_ROBERTA,
        DISTILBERT,
        ALBERT,
        FLAUBERT,
        ELECTRA,
        MPNET,
        DEBERTA,
        MODERNBERT,
        NOMIC_BERT,
        GTE,
        EUROBERT,
        NEOBERT,
        NATIVE,
    )
}
"""`model_type` of a config.json → family."""

FORMER_TYPES = {"new": GTE.model_type}
"""`model_type` in files of the code that models were published with → transformers'."""

FAMILY_NAMES = (*(name for name, family in FAMILIES.items() if family.for_new_models), "modern")
"""Names that a spec may give for the manner of a model with random weights."""
