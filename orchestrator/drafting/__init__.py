"""Drafts of specs: files of data are looked at, split and sized, and become commented YAML that can be run."""
