"""Masks: the tokens that are hidden, and what stands in their place (`masks`), chosen in units of tokens (`units`)."""

from bert_core.masking.masks import MaskingConfig, choose_masks, mask_tokens

__all__ = ["MaskingConfig", "choose_masks", "mask_tokens"]
