"""Text to batches with Ray Data: files, documents, token store, numbered examples, packed batches. No torch."""
