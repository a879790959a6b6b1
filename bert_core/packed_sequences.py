"""A batch without padding: the real tokens of all sequences laid end to end.

Shapes: B sequences, S slots of a padded row, T real tokens (the sum of the lengths).
"""

from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.errors import DataError


@dataclass(frozen=True)
class PackedSequences:
    """What the encoder eats. Only attention looks at the borders between sequences."""

    input_ids: Tensor
    """(T,) int64"""
    token_type_ids: Tensor
    """(T,) int64: 0 in segment A, 1 in segment B"""
    position_ids: Tensor
    """(T,) int64: place within the own sequence"""
    cu_seqlens: Tensor
    """(B+1,) int32: sequence b is tokens cu_seqlens[b] to cu_seqlens[b+1]"""
    max_seqlen: int
    """S, slots of a row that takes any of the sequences"""
    slots: Tensor
    """(T,) int64: each token's place among the B·S slots of the padded form"""
    is_key: Tensor
    """(B, S) bool: slots that may be attended to"""
    includes_padding: bool = False
    """Whether padding was packed as well, as tokens that look but are never looked at"""
    states: Tensor | None = None
    """(T, …) what `HeadInput.select` gave for these tokens, where the layers do not learn and it was kept"""
    attention_cache: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What attention on the CPU works out once for all layers, by the number of heads"""

    @property
    def num_sequences(self) -> int:
        """B"""
        return self.cu_seqlens.shape[0] - 1

    @property
    def num_tokens(self) -> int:
        """T"""
        return self.input_ids.shape[0]

    @property
    def first_tokens(self) -> Tensor:
        """(B,) places of the sequences' first tokens ([CLS])"""
        return self.cu_seqlens[:-1]

    @classmethod
    def from_lengths(cls, input_ids: Tensor, token_type_ids: Tensor, cu_seqlens: Tensor) -> Self:
        """From tokens that already lie end to end: (T,), (T,), (B+1,). Positions restart in each sequence.

        Raises: DataError when the lengths are not those of the tokens, or a sequence is empty.
        """
        lengths = cu_seqlens.diff().long()
        if cu_seqlens.numel() < 2 or cu_seqlens[0] != 0 or int(lengths.min()) < 1:
            raise DataError("cu_seqlens must start at 0 and rise with each sequence; leave empty sequences out")
        if not int(cu_seqlens[-1]) == input_ids.shape[0] == token_type_ids.shape[0]:
            raise DataError(
                f"cu_seqlens ends at {int(cu_seqlens[-1])}, but there are {input_ids.shape[0]} input_ids "
                f"and {token_type_ids.shape[0]} token_type_ids; the three must agree"
            )
        max_seqlen = int(lengths.max())
        is_key = torch.arange(max_seqlen, device=lengths.device) < lengths[:, None]
        slots = is_key.view(-1).nonzero().squeeze(1)
        return cls(
            input_ids=input_ids.long(),
            token_type_ids=token_type_ids.long(),
            position_ids=slots % max_seqlen,
            cu_seqlens=cu_seqlens.int(),
            max_seqlen=max_seqlen,
            slots=slots,
            is_key=is_key,
        )

    @classmethod
    def from_numpy(cls, input_ids: NDArray[Any], token_type_ids: NDArray[Any], cu_seqlens: NDArray[Any]) -> Self:
        """`from_lengths` for arrays of any integer type."""
        arrays = (input_ids, token_type_ids, cu_seqlens)
        return cls.from_lengths(*(torch.from_numpy(array.astype(np.int64)) for array in arrays))

    @classmethod
    def from_padded(
        cls,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        keep_padding: bool = False,
        padding_id: int | None = None,
    ) -> Self:
        """From padded rows (B, S). A token's position is its column, so that padding may lie on either side.

        With a `padding_id` it is the number of other tokens before it in the row, −1 for padding itself, as RoBERTa
        counts.

        Raises: DataError when shapes differ or a row has no real token.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        if input_ids.dim() != 2 or not input_ids.shape == mask.shape == types.shape:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (input_ids, mask, types))
            raise DataError(
                f"input_ids, attention_mask and token_type_ids have the shapes {shapes}; all must be (batch, sequence)"
            )
        is_key = mask.bool()
        lengths = is_key.sum(dim=1)
        if lengths.numel() == 0 or int(lengths.min()) == 0:
            raise DataError("attention_mask is zero over a whole row, or the batch is empty; give each row a token")
        if keep_padding:
            lengths = torch.full_like(lengths, input_ids.shape[1])
        else:
            width = int(is_key.any(dim=0).nonzero().max()) + 1
            input_ids, types, is_key = input_ids[:, :width], types[:, :width], is_key[:, :width]
        packed = torch.ones_like(is_key) if keep_padding else is_key
        slots = packed.reshape(-1).nonzero().squeeze(1)
        position_ids = slots % input_ids.shape[1]
        if padding_id is not None:
            is_token = input_ids != padding_id
            position_ids = (is_token.cumsum(1) * is_token - 1).reshape(-1)[slots]
        return cls(
            input_ids=input_ids.reshape(-1)[slots].long(),
            token_type_ids=types.reshape(-1)[slots].long(),
            position_ids=position_ids,
            cu_seqlens=torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
            max_seqlen=input_ids.shape[1],
            slots=slots,
            is_key=is_key,
            includes_padding=keep_padding,
        )

    def pack(self, padded: Tensor) -> Tensor:
        """The real tokens' values of a padded tensor: (B, S', …) → (T, …), S' at least S."""
        return padded[:, : self.max_seqlen].flatten(0, 1).index_select(0, self.slots)

    def unpack(self, values: Tensor, width: int | None = None) -> Tensor:
        """Padded rows of (T, …) values: (B, width or S, …), zero where there is no token."""
        rows = values.new_zeros(self.num_sequences * self.max_seqlen, *values.shape[1:])  # (B·S, …)
        rows = rows.index_copy(0, self.slots, values).view(self.num_sequences, self.max_seqlen, *values.shape[1:])
        if width is None or width == self.max_seqlen:
            return rows
        missing = rows.new_zeros(self.num_sequences, width - self.max_seqlen, *values.shape[1:])
        return torch.cat([rows, missing], dim=1)  # (B, width, …)

    def to(self, device: torch.device | str) -> Self:
        """The same batch on a device, copied without waiting."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        moved = {k: v.to(device, non_blocking=True) for k, v in values.items() if isinstance(v, Tensor)}
        return type(self)(**(values | moved))
