"""Published scores of BERT and its relatives, `numbers.yaml`, and how far a run's scores are from them."""
