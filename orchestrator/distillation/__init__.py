"""Distillation: a fine-tuned teacher, a smaller student trained on what it says, and both compared."""
