"""Search algorithms, which choose the points of a sweep's space. Specs import them: no specs, no numpy, no Ray here."""
