"""Common part of every training: checkpoints on the storage, events to the driver, the order of batches."""
