"""From documents to numbered, masked, packed examples: arithmetic over whole arrays. No torch."""
