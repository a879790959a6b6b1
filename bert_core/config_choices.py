"""The choices that a model and its examples are made of: what the fields of configurations and of specs may say.

In one file without torch and numpy, as the command line reads specs at its start.
"""

from typing import Literal

HiddenActivation = Literal["gelu", "gelu_new", "relu", "silu"]
ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]
PositionEmbedding = Literal["absolute", "rotary", "alibi"]
FeedForward = Literal["mlp", "gated"]
NormPlacement = Literal["post", "pre"]
PoolerActivation = Literal["tanh", "relu"]
HeadStates = Literal["last", "second_to_last", "sum_last_four", "concat_last_four", "scalar_mix", "embeddings"]
TokenDecoder = Literal["softmax", "crf"]
Pooling = Literal["mean", "cls", "max"]
