"""Fine-tuning: a sweep's search space, its trials, and Ray Tune, which runs them."""
