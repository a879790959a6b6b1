"""Files of the weights in a model folder, whichever tool wrote it. No torch.

model.safetensors                one file
model.safetensors.index.json     several, with an index: which weight is in which file
pytorch_model.bin                of torch.save
pytorch_model.bin.index.json     several of these
"""

import json
from collections.abc import Mapping
from pathlib import Path

from bert_core.errors import CheckpointError

WEIGHTS_FILE = "model.safetensors"
_PICKLE = "pytorch_model.bin"
INDEX_ENDING = ".index.json"
WEIGHT_FILES = (WEIGHTS_FILE, WEIGHTS_FILE + INDEX_ENDING, _PICKLE, _PICKLE + INDEX_ENDING)
"""Files of which a folder needs one, in the order in which they are looked for."""
_OTHER_FRAMEWORKS = ("model.ckpt.index", "tf_model.h5", "flax_model.msgpack")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def find_weights(folder: Path) -> tuple[Path, Mapping[str, Path]]:
    """Find a folder's weights: their file, or an index and the file of each weight by the weight's name.

    Raises: CheckpointError, naming the file that is missing, broken or in git-lfs still.
    """
    path = next((folder / name for name in WEIGHT_FILES if (folder / name).is_file()), None)
    if path is None:
        for name in _OTHER_FRAMEWORKS:
            if (folder / name).exists():
                raise CheckpointError(
                    f"{folder / name} is of TensorFlow or JAX and is not read; load the folder with transformers and "
                    f"call save_pretrained to get {WEIGHTS_FILE}"
                )
        raise CheckpointError(
            f"{folder / WEIGHTS_FILE} is missing, and {_PICKLE} too; a model folder holds config.json and weights"
        )
    try:
        places = _read_index(path) if path.name.endswith(INDEX_ENDING) else {}
        pointers = [file for file in sorted({path, *places.values()}) if is_lfs_pointer(file)]
    except OSError as error:
        raise CheckpointError(f"{error.filename} cannot be read ({error.strerror}); make it readable") from None
    if pointers:
        raise CheckpointError(f"{pointers[0]} is a git-lfs pointer and no weights; fetch them with: git lfs pull")
    return path, places


def is_lfs_pointer(path: Path) -> bool:
    """Whether a file is the few lines that git has in place of a large file until `git lfs pull`."""
    with path.open("rb") as file:
        return file.read(len(_LFS_POINTER)) == _LFS_POINTER


def _read_index(path: Path) -> dict[str, Path]:
    try:
        places = {str(name): str(file) for name, file in json.loads(path.read_bytes())["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        places = {}
    if not places:
        raise CheckpointError(f"{path} has no weight_map of files by weight; fetch or save the folder anew")
    for file in sorted(set(places.values())):
        if Path(file).name != file or not (path.parent / file).is_file():
            raise CheckpointError(f"{path} lists {file}, which is not in the folder; fetch or save the folder anew")
    return {name: path.parent / file for name, file in places.items()}
