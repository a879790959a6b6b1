"""A model behind HTTP: a page to try it, and a JSON endpoint; replicas on Ray Serve answer.

    browser, program ─► app, in the process that was started ─► replicas on Ray, each with the model

The process that a person starts listens, checks tokens and sizes, and hands inputs on. So the address is that of the
machine where the command was typed, wherever Ray runs, and neither the token nor a request that is refused reaches Ray.
"""
