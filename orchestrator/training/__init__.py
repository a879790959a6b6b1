"""Common part of every training: checkpoints and snapshots on the storage, events to the driver, batch order."""
