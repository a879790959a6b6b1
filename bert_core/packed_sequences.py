"""A batch without padding: the real tokens of all sequences laid end to end.

Shapes: B sequences, S length of a padded row, T real tokens (the sum of the lengths).
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.device_copies import copy_together
from bert_core.errors import DataError

Cached = TypeVar("Cached")


@dataclass(frozen=True)
class PackedSequences:
    """A batch of sequences without padding: the encoder's input.

    Every layer but attention treats each token by itself; attention alone looks at where sequences begin and end.
    """

    input_ids: Tensor
    """Ids of the tokens, (T,) int64."""
    token_type_ids: Tensor
    """Segments of the tokens, (T,) int64: 0 in segment A, 1 in segment B."""
    position_ids: Tensor
    """Position of each token in its sequence, (T,) int64."""
    cu_seqlens: Tensor
    """Cumulative sequence lengths, (B+1,) int32: sequence b is tokens cu_seqlens[b] to cu_seqlens[b+1]."""
    max_seqlen: int
    """S: length of the padded form's rows."""
    padded_indices: Tensor | None = None
    """`indices` where the batch was made of padded rows; None: each sequence begins its row."""
    padded_mask: Tensor | None = None
    """`attention_mask` where the batch was made of padded rows."""
    includes_padding: bool = False
    """Whether padding was packed as well: padding tokens are queries, never keys."""
    host_lengths: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)
    """Tokens of each sequence, (B,), on the host, where the maker of the batch gave them: reading them from
    `cu_seqlens` would wait for a GPU."""
    attention_cache: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Layouts and biases that attention makes of the batch once for all layers; see `cached`."""

    @property
    def num_sequences(self) -> int:
        return self.cu_seqlens.shape[0] - 1

    @property
    def num_tokens(self) -> int:
        return self.input_ids.shape[0]

    @property
    def first_tokens(self) -> Tensor:
        """Indices of the sequences' first tokens ([CLS]) among all tokens: (B,)."""
        return self.cu_seqlens[:-1]

    @property
    def last_tokens(self) -> Tensor:
        """Indices of the sequences' last tokens ([SEP]) among all tokens: (B,)."""
        return self.cu_seqlens[1:] - 1

    @property
    def indices(self) -> Tensor:
        """Index of each token in the flattened padded form (B·S,): (T,) int64."""
        return self.cached("indices", self._left_indices) if self.padded_indices is None else self.padded_indices

    @property
    def attention_mask(self) -> Tensor:
        """Mask of the padded form, True where there is a token to attend to: (B, S) bool."""
        return self.cached("mask", self._left_mask) if self.padded_mask is None else self.padded_mask

    def _left_indices(self) -> Tensor:
        row_starts = torch.arange(self.num_sequences, device=self.cu_seqlens.device) * self.max_seqlen  # (B,)
        return self.position_ids + row_starts.repeat_interleave(self.cu_seqlens.diff(), output_size=self.num_tokens)

    def _left_mask(self) -> Tensor:
        lengths = self.cu_seqlens.diff()[:, None]  # (B, 1)
        return torch.arange(self.max_seqlen, device=lengths.device) < lengths

    @classmethod
    def from_lengths(
        cls,
        input_ids: Tensor,
        token_type_ids: Tensor,
        cu_seqlens: Tensor,
        max_seqlen: int | None = None,
    ) -> Self:
        """Make a batch of tokens that already lie end to end: (T,), (T,), (B+1,). Positions restart in each sequence.

        Args:
            max_seqlen: length that no sequence exceeds, where the caller knows it: then the lengths are not looked at,
                so that nothing waits for the device that they are on.

        Raises: DataError when the lengths are not those of the tokens, or a sequence is empty; with `max_seqlen` the
            caller answers for that.
        """
        if max_seqlen is None:
            max_seqlen = _checked_max_seqlen(input_ids, token_type_ids, cu_seqlens)
        starts = cu_seqlens[:-1].repeat_interleave(cu_seqlens.diff(), output_size=len(input_ids))  # (T,)
        return cls(
            input_ids=input_ids.long(),
            token_type_ids=token_type_ids.long(),
            position_ids=torch.arange(len(input_ids), device=starts.device) - starts,
            cu_seqlens=cu_seqlens.int(),
            max_seqlen=max_seqlen,
        )

    @classmethod
    def from_numpy(cls, input_ids: NDArray[Any], token_type_ids: NDArray[Any], cu_seqlens: NDArray[Any]) -> Self:
        """Make a batch as `from_lengths` does, from arrays of any integer type."""
        ids, types, offsets = (
            torch.from_numpy(array.astype(np.int64)) for array in (input_ids, token_type_ids, cu_seqlens)
        )
        return cls.from_lengths(ids, types, offsets)

    @classmethod
    def from_padded(
        cls,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        keep_padding: bool = False,
        padding_id: int | None = None,
    ) -> Self:
        """Make a batch of padded rows (B, S). A token's position is its column, so padding may lie on either side.

        With a `padding_id`, a token's position is the number of other tokens before it in the row, −1 for padding
        itself, as RoBERTa counts.

        Raises: DataError when shapes differ or a row has no real token.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        if input_ids.dim() != 2 or not input_ids.shape == mask.shape == types.shape:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (input_ids, mask, types))
            raise DataError(
                f"input_ids, attention_mask and token_type_ids have the shapes {shapes}; all must be (batch, sequence)"
            )
        attended = mask.bool()
        lengths = attended.sum(dim=1)
        if lengths.numel() == 0 or int(lengths.min()) == 0:
            raise DataError("attention_mask is zero over a whole row, or the batch is empty; give each row a token")
        if keep_padding:
            lengths = torch.full_like(lengths, input_ids.shape[1])
        else:
            width = int(attended.any(dim=0).nonzero().max()) + 1
            input_ids, types, attended = input_ids[:, :width], types[:, :width], attended[:, :width]
        packed = torch.ones_like(attended) if keep_padding else attended
        indices = packed.reshape(-1).nonzero().squeeze(1)
        position_ids = indices % input_ids.shape[1]
        if padding_id is not None:
            is_token = input_ids != padding_id
            position_ids = (is_token.cumsum(1) * is_token - 1).reshape(-1)[indices]
        return cls(
            input_ids=input_ids.reshape(-1)[indices].long(),
            token_type_ids=types.reshape(-1)[indices].long(),
            position_ids=position_ids,
            cu_seqlens=torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
            max_seqlen=input_ids.shape[1],
            padded_indices=indices,
            padded_mask=attended,
            includes_padding=keep_padding,
        )

    def cached(self, key: Hashable, build: Callable[[], Cached]) -> Cached:
        """Build what all layers share at the first call with a key, and return the same at later calls.

        The key says what the result depends on beside the batch. A tensor in it stands for itself, not for its values.
        """
        if key not in self.attention_cache:
            with torch.inference_mode(False):  # training refuses tensors that inference mode has made
                self.attention_cache[key] = build()
        found: Cached = self.attention_cache[key]
        return found

    def pack(self, padded: Tensor) -> Tensor:
        """Take the tokens' values out of a padded tensor: (B, S', …) → (T, …), S' at least S."""
        return padded[:, : self.max_seqlen].flatten(0, 1).index_select(0, self.indices)

    def unpack(self, values: Tensor, width: int | None = None) -> Tensor:
        """Lay the tokens' values out as padded rows, zero where there is no token: (T, …) → (B, width or S, …)."""
        rows = values.new_zeros(self.num_sequences * self.max_seqlen, *values.shape[1:])  # (B·S, …)
        rows = rows.index_copy_(0, self.indices, values).view(self.num_sequences, self.max_seqlen, *values.shape[1:])
        if width is None or width == self.max_seqlen:
            return rows
        missing = rows.new_zeros(self.num_sequences, width - self.max_seqlen, *values.shape[1:])
        return torch.cat([rows, missing], dim=1)  # (B, width, …)

    def tensors(self) -> dict[str, Tensor]:
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same batch with these tensors in the fields of their names."""
        values: dict[str, Any] = dict(tensors)
        return replace(self, **values)

    def to(self, device: torch.device | str) -> Self:
        """Copy the batch to a device, without waiting for it."""
        return self.with_tensors(copy_together(self.tensors(), torch.device(device)))


def _checked_max_seqlen(input_ids: Tensor, token_type_ids: Tensor, cu_seqlens: Tensor) -> int:
    """Length of the longest sequence. Raises: DataError when the lengths are not those of the tokens."""
    lengths = cu_seqlens.diff()
    if cu_seqlens.numel() < 2 or cu_seqlens[0] != 0 or int(lengths.min()) < 1:
        raise DataError("cu_seqlens must start at 0 and rise with each sequence; leave empty sequences out")
    if not int(cu_seqlens[-1]) == input_ids.shape[0] == token_type_ids.shape[0]:
        raise DataError(
            f"cu_seqlens ends at {int(cu_seqlens[-1])}, but there are {input_ids.shape[0]} input_ids "
            f"and {token_type_ids.shape[0]} token_type_ids; the three must agree"
        )
    return int(lengths.max())
