"""Distillation: a teacher, fine-tuned (`job`) or pretrained (`masked_tokens`), its smaller student, both compared."""
