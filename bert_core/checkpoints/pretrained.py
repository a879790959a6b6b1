"""Base class of all models: weights drawn from a seed, and folders in Hugging Face's layout."""

import logging
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from bert_core.checkpoints.manifest import MANIFEST_FILE, atomic_write, check_manifest, write_json, write_manifest
from bert_core.checkpoints.tensor_files import load_weights, save_tensors
from bert_core.checkpoints.weight_files import WEIGHTS_FILE, find_weights
from bert_core.config import CONFIG_FILE, BertConfig
from bert_core.errors import CheckpointError
from bert_core.families import ENCODER, Family

_OLD_ENDINGS = {r"LayerNorm\.gamma$": "LayerNorm.weight", r"LayerNorm\.beta$": "LayerNorm.bias"}
_CONSTANT = "position_ids"
_QKV = re.compile(r"\blayers\.\d+\.qkv\.")
_ADDS_TO_RESIDUAL = re.compile(r"\blayers\.\d+\.(attention_)?output\.weight$")


@dataclass(frozen=True)
class WeightNames:
    """Names in a file for the parameters of one class of models.

    >>> from bert_core.families import FAMILIES
    >>> WeightNames(FAMILIES["bert"], "BertForPreTraining").of("bert.layers.0.qkv.bias")[2]
    'bert.encoder.layer.0.attention.self.value.bias'
    """

    family: Family
    head: str
    """Name of the class."""
    is_encoder_alone: bool = False
    """Whether the class is the encoder without a head; a file may then leave out the family's prefix."""
    qkv_heads: tuple[int, int, int] = (1, 1, 1)
    """Heads of queries, of keys and of values, whose rows lie one behind the other in the fused parameter."""

    def of(self, name: str) -> tuple[str, ...]:
        """Name of a parameter in a file, with the family's prefix; several names for a fused one."""
        return self.family.file_names(ENCODER + name if self.is_encoder_alone else name, self.head)

    @property
    def kept_by_new_heads(self) -> tuple[str, ...]:
        """Beginnings of the names in a file that a model with a new head starts from."""
        head_layer = (f"{ENCODER}pooler.", f"{ENCODER}pooler_norm.") if self.family.has_head_layer else ()
        return (self.family.prefix, *(beginning for name in head_layer for beginning in self.of(name)))

    def to_file(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Give a model's weights their names in a file; those of an encoder alone get no prefix."""
        prefix = self.family.prefix if self.is_encoder_alone else ""
        return {
            file_name.removeprefix(prefix): part.detach().cpu().contiguous()
            for name, tensor in state.items()
            for file_name, part in self.split(name, tensor).items()
        }

    def split(self, name: str, tensor: Tensor) -> dict[str, Tensor]:
        """Parts of a parameter by their names in a file, with their rows in the file's order."""
        names, tensor = self.of(name), self._swapped(name, tensor)
        if len(names) > 1:
            shares = self.qkv_heads if _QKV.search(name) else (1,) * len(names)
            parts = torch.split(tensor, [len(tensor) // sum(shares) * share for share in shares])
            return dict(zip(names, parts, strict=True))
        order = self._row_order(name, len(tensor))
        return {names[0]: tensor if order is None else tensor[order]}

    def join(self, name: str, parts: Sequence[Tensor]) -> Tensor:
        """Make a parameter of its parts in a file: the inverse of `split`."""
        if len(parts) > 1:
            return self._swapped(name, torch.cat(list(parts)))
        order = self._row_order(name, len(parts[0]))
        return self._swapped(name, parts[0]) if order is None else parts[0][torch.tensor(order).argsort()]

    def _row_order(self, name: str, num_rows: int) -> Sequence[int] | None:
        return self.family.qkv_order(self.qkv_heads[0], num_rows) if _QKV.search(name) else None

    def _swapped(self, name: str, tensor: Tensor) -> Tensor:
        """A parameter in a file's order of rows, or a file's tensor in the parameter's: both ways are the same."""
        swaps = self.family.gate_comes_second and ".intermediate." in name
        return tensor.roll(len(tensor) // 2, dims=0) if swaps else tensor

    def normalized(self, weights: Mapping[str, Tensor], parameters: Collection[str]) -> dict[str, Tensor]:
        """Give a file's weights one spelling, whichever tool and year wrote it, and leave out copies of others."""
        wanted = {file_name for name in parameters for file_name in self.of(name)}
        result = {}
        for name, tensor in weights.items():
            for old, new in _OLD_ENDINGS.items():
                name = re.sub(old, new, name)
            name = name.removeprefix(self.family.former_prefix)
            with_prefix = self.family.prefix + name
            result[with_prefix if with_prefix in wanted else name] = tensor
        for copy, original in self.family.tied_weights.items():
            if copy in result and copy not in wanted:
                result.setdefault(original, result.pop(copy))
        for bias, weight in self.family.absent_biases.items():
            has_module = any(name.startswith(bias.removesuffix("bias")) for name in result)
            if has_module and weight in result:
                result.setdefault(bias, torch.zeros(len(result[weight])))
        return {name: tensor for name, tensor in result.items() if not name.endswith(_CONSTANT)}


logger = logging.getLogger(__name__)

_WRAPPERS = ("module.", "_orig_mod.")
"""Beginnings of all names where DataParallel or `torch.compile` was around the model."""


@dataclass(frozen=True)
class LoadReport:
    """Weights that did not match when a model was loaded, by their names in Hugging Face's files."""

    dropped: tuple[str, ...]
    """Weights of the file that the model does not have."""
    initialized: tuple[str, ...]
    """Weights of the model that the file lacks; they were drawn from the seed."""


class PretrainedModel(nn.Module):
    """A BERT with or without a head. A subclass creates its modules in `build`."""

    load_report: LoadReport | None = None
    """Report of `from_pretrained`; None for a model that was not loaded."""
    is_encoder_alone = False
    """Whether the model is the encoder without a head."""

    def __init__(self, config: BertConfig, seed: int | None = 0) -> None:
        """Make a model with weights drawn from `seed`; None leaves them without memory, for a part of another model."""
        super().__init__()
        self.config = config
        with torch.device("meta"):  # nothing is drawn from torch's global generator
            self.build(config)
        if seed is not None:
            self.to_empty(device="cpu")
            self.initialize(seed)

    def build(self, config: BertConfig) -> None:
        """Create the modules; where one depends on the configuration, it is None if absent."""
        raise NotImplementedError

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Draw all weights anew: normal (Devlin et al. 2018, not truncated, as in Hugging Face), biases zero."""
        generator = torch.Generator().manual_seed(seed)
        std = self.config.initializer_range
        added = std / math.sqrt(2 * self.config.num_hidden_layers) if self.config.depth_scaled_init else std
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=added if _ADDS_TO_RESIDUAL.search(name) else std, generator=generator)
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
        for module in self.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx].zero_()

    @classmethod
    def from_config(cls, config: BertConfig, seed: int = 0) -> Self:
        """Make a new model; equal seeds give equal weights, and torch's global generator is not used."""
        return cls(config, seed)

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, config: BertConfig | None = None, seed: int | None = 0, encoder_only: bool = False
    ) -> Self:
        """Load the model of a folder in Hugging Face's layout; its `load_report` lists what did not match.

        Args:
            config: configuration to use instead of the folder's, for another dropout or other labels.
            seed: seed of the weights that the folder lacks; None checks the folder and keeps no weights.
            encoder_only: whether to ignore the folder's head and start with a new one.

        Raises: CheckpointError, naming file and remedy.
        """
        folder = Path(folder)
        model = cls(config or BertConfig.from_pretrained(folder), seed)
        names = model.weight_names
        in_file, path = read_weights(folder)
        weights = names.normalized(in_file, dict(model.named_parameters()))
        if encoder_only:
            weights = {name: weight for name, weight in weights.items() if name.startswith(names.kept_by_new_heads)}
        model.load_report = model._load(weights, path)
        return model.eval()

    @property
    def weight_names(self) -> WeightNames:
        config = self.config
        return WeightNames(config.family, type(self).__name__, self.is_encoder_alone, config.qkv_heads)

    def was_without(self, module: str) -> bool:
        """Whether the folder that the model was loaded from lacks a weight of a module."""
        assert self.load_report is not None, "for loaded models"
        own = (f"{module}.{name}" for name, _ in self.get_submodule(module).named_parameters())
        return not {file_name for name in own for file_name in self.weight_names.of(name)}.isdisjoint(
            self.load_report.initialized
        )

    @torch.no_grad()
    def _load(self, weights: dict[str, Tensor], path: Path) -> LoadReport:
        used: set[str] = set()
        missing: list[str] = []
        essential: list[str] = []
        in_file = self.weight_names
        for name, parameter in self.named_parameters():
            names = in_file.of(name)
            absent = [file_name for file_name in names if file_name not in weights]
            if absent:
                missing += absent
                in_encoder = self.is_encoder_alone or name.startswith(ENCODER)
                essential += absent if in_encoder and "pooler" not in name else []
                continue
            parts = [weights[file_name] for file_name in names]
            if not parts[0].is_floating_point() or parts[0].itemsize < 2:
                raise CheckpointError(
                    f"{path}: {names[0]} is of {parts[0].dtype}; quantized weights are not read: fetch the folder in "
                    "float32, float16 or bfloat16"
                )
            for (file_name, own), part in zip(in_file.split(name, parameter).items(), parts, strict=True):
                if part.shape != own.shape:
                    raise CheckpointError(
                        f"{path}: {file_name} is {tuple(part.shape)} where config.json asks for {tuple(own.shape)}; "
                        "use the config.json that was saved with these weights"
                        + ("" if name.startswith(ENCODER) else ", or load with encoder_only=True for a new head")
                    )
            parameter.copy_(in_file.join(name, parts))
            used.update(names)
        if essential:
            raise CheckpointError(
                f"{path} lacks {len(essential)} weights of the encoder, {essential[0]} first, and begins with "
                f"{next(iter(weights), 'none')}: it is not the model in config.json (model_type, shape), or its names "
                "have another prefix; fetch or save the folder anew"
            )
        self._refuse_more_layers(weights, path)
        return LoadReport(tuple(sorted(weights.keys() - used)), tuple(missing))

    def _refuse_more_layers(self, weights: dict[str, Tensor], path: Path) -> None:
        encoder = self if self.is_encoder_alone else self.get_submodule(ENCODER.removesuffix("."))
        number = len(list(encoder.get_submodule("layers").children()))
        beyond = f"layers.{number}.attention_norm.weight"
        (name,) = self.weight_names.of(beyond if self.is_encoder_alone else ENCODER + beyond)
        if name in weights or name.removeprefix(self.config.family.prefix) in weights:
            raise CheckpointError(
                f"{path} has more layers than the {number} that config.json asks for; use the config.json that was "
                "saved with these weights"
            )

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config.json, model.safetensors and manifest.json; transformers loads the folder.

        Each file appears whole or not at all, the manifest last. A replacement that breaks off in the middle leaves
        the older manifest, which then refuses the mixture.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"{folder} cannot be made a folder ({error.strerror}); name another") from None
        weights = self.weight_names.to_file(self.state_dict())
        architecture = self.config.family.architecture(type(self).__name__)
        details = {"architectures": [architecture], "dtype": str(next(self.parameters()).dtype).split(".")[-1]}
        write_json(folder / CONFIG_FILE, self.config.to_dict() | details)
        atomic_write(folder / WEIGHTS_FILE, lambda path: save_tensors(weights, path, {"format": "pt"}))
        write_manifest(folder, [CONFIG_FILE, WEIGHTS_FILE])


def read_weights(folder: Path) -> tuple[dict[str, Tensor], Path]:
    """Read the weights of a model folder, by their names in its files, and the file to name for them.

    Raises: CheckpointError, naming the file that is missing, altered, broken or holds a weight that is not finite.
    """
    if (folder / MANIFEST_FILE).exists():
        check_manifest(folder, "fetch or save the folder anew, or delete manifest.json if the change was meant")
    path, places = find_weights(folder)
    weights: dict[str, Tensor] = {}
    for file in dict.fromkeys(places.values()) or (path,):
        weights |= load_weights(file)
    for name, file in places.items():
        if name not in weights:
            raise CheckpointError(f"{file} lacks {name}, which {path.name} lists; fetch or save the folder anew")
    while weights and (wrapper := next((some for some in _WRAPPERS if all(n.startswith(some) for n in weights)), None)):
        logger.info(f"{path}: the name of each weight begins with {wrapper!r}, which is left out")
        weights = {name.removeprefix(wrapper): tensor for name, tensor in weights.items()}
    return weights, path
