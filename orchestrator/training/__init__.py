"""What every training shares: checkpoints on the storage, events on their way to the driver, the order of batches."""
