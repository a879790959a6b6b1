"""Tests of `orchestrator.published`."""
