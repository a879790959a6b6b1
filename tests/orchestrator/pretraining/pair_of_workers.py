"""How one of two training workers in plain processes meets the other and leaves it."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import torch.distributed


def meet(folder: Path, rank: int) -> None:
    """Join the other worker by gloo, through a file in the folder."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)


def leave() -> NoReturn:
    """Wait for the other worker, then end this process at once, as Ray ends a worker's.

    Where torch._dynamo is loaded, torch 2.13 keeps the threads of a group that was destroyed; now and then one of them
    ends the interpreter that closes down beside it with "terminate called without an active exception".
    """
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)
