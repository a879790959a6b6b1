"""Examples of pretraining: chunks of documents, segments of chunks, sequences laid end to end. No torch.

Everything is arithmetic over whole arrays, for thousands of examples at once. Which segments and labels an example has
is for an objective to say (`bert_core.objectives`).
"""
