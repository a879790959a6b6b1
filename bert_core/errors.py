"""Errors that a person who uses `bert_core` can cause; each message names the value or file and the remedy.

ValueError
└── BertCoreError
    ├── ConfigError       an impossible model, an unknown size or activation
    ├── CheckpointError   a folder or file of weights that is missing, cut short, altered or does not fit
    │   └── NewerFormatError   one that a newer version of this package has written
    ├── TokenizerError    a tokenizer that is missing, broken or does not fit the model
    └── DataError         inputs, labels or predictions that break their contract
"""


class BertCoreError(ValueError):
    """Root of the errors; the message of each can be shown to a person as it is."""


class ConfigError(BertCoreError):
    """A model configuration that cannot be built."""


class CheckpointError(BertCoreError):
    """A folder or file of weights that is missing, cut short, altered or does not fit."""


class NewerFormatError(CheckpointError):
    """A folder or file that a newer version of this package has written; it may be whole, so nothing else is tried."""


class TokenizerError(BertCoreError):
    """A tokenizer that is missing, broken or does not fit the model."""


class DataError(BertCoreError):
    """Inputs, labels or predictions that break their contract."""
