"""Pretraining with Ray Train: the driver's side (`launch`) and the workers' (`worker`, `loop`)."""
