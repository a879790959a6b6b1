"""Drafts of specs: files of data are looked at, split and sized, and become commented YAML that can be run.

`draft.draft_spec` is the way through. Nothing is written before all has been read; no file of a person is changed.
"""
