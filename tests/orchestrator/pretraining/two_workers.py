"""One of two training workers in plain processes, joined by gloo through a file.

python -m tests.orchestrator.pretraining.two_workers FOLDER RANK CHANGES.json
"""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file

from orchestrator.pretraining.collectives import Worker
from tests.orchestrator.pretraining.pair_of_workers import leave, meet
from tests.orchestrator.pretraining.small_run import keeping_losses, make_job, run

if __name__ == "__main__":
    folder, rank, changes = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    changes["model"] = json.loads(changes["model"])
    meet(folder, rank)
    changes["execution"] = {"num_workers": 2, "log_every_steps": 2}
    losses: list[float] = []
    loop = run(make_job(folder, **changes), keeping_losses(losses), Worker(rank, 2))
    (folder / f"rank-{rank}.json").write_text(json.dumps(losses))
    save_file(loop.model.state_dict(), folder / f"rank-{rank}.safetensors")
    leave()
