"""Everything that is written of a run while it works: its life, trials, measurements, data, costs, notes."""
