"""A model behind HTTP: a page to try it, and a JSON endpoint, in the process that a person started."""
