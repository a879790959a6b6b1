"""Files of lines through a model, block by block: in this process, or by workers on Ray; the same bytes either way."""
