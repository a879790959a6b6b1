"""What trainings share: checkpoints and snapshots on the storage, events on their way to the driver, batch order."""
