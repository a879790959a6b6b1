"""How training workers in plain processes, two or more, meet and leave one another."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import torch.distributed


def meet(folder: Path, rank: int, num_workers: int = 2, name: str = "meeting") -> None:
    """Join the other workers by gloo, through a file of this name in the folder, which is new for each group."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=num_workers
    )


def leave() -> NoReturn:
    """Wait for the other workers, then end this process at once, as Ray ends a worker's.

    Where torch._dynamo is loaded, torch 2.13 keeps the threads of a group that was destroyed; now and then one of them
    ends the interpreter that closes down beside it with "terminate called without an active exception".
    """
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)
