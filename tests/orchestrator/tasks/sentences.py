"""A handful of sentences from which tests train a tokenizer."""

SENTENCES = [
    "The old house stands by the river near Oslo.",
    "Ada Lovelace wrote to Charles Babbage in London about the engine.",
    "A small engine drives the mill, and the miller sells flour in 1843.",
    "It rained for nine days; nobody left the house.",
]
