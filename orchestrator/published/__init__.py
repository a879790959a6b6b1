"""Published numbers of BERT and its relatives, as data with their sources; and how far a run's result is from them."""
