"""A model scored from a head without a GPU, on a cluster whose other node has one by name. Says as JSON where that was.

python -m tests.orchestrator.cluster.scores_on_cluster FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from orchestrator.cluster.capacity import decide_gpus
from orchestrator.cluster.remote_call import call_on_device
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.evaluation import evaluate_model
from orchestrator.finetuning.model_folder import save_model_folder
from orchestrator.finetuning.model_record import record_of
from orchestrator.tasks import Task, load_task
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.tasks.definitions import options_of


def save_model(folder: Path, task: Task) -> str:
    """Write an untrained classifier of a task; returns its folder."""
    tokenizer = tiny_tasks.load_tokenizer(folder)
    model = build_model(task, tiny_tasks.RECIPE, None, tokenizer)
    save_model_folder(model, tokenizer, record_of(task, options_of("classification")), str(folder / "model"))
    return str(folder / "model")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    task = load_task(tiny_tasks.classification(folder))
    model = save_model(folder, task)

    def score(device: str) -> dict[str, Any]:
        """Score on a CPU, as no GPU is there; says what was given and where."""
        context = ray.get_runtime_context()
        metrics = evaluate_model(model, task, "validation", 16, str(folder / "cache")).metrics
        return {
            "device": device,
            "node": context.get_node_id(),
            "gpus": context.get_accelerator_ids()["GPU"],
            "metrics": metrics,
        }

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        with_gpu = cluster.add_node(num_cpus=1, num_gpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        gpus = decide_gpus("auto")
        found = {"there": call_on_device(score, 1.0, gpus, "the model was not scored"), "here": score("cpu")}
        print(json.dumps(found | {"auto": gpus, "node_with_gpu": with_gpu.node_id}))
    finally:
        ray.shutdown()
        cluster.shutdown()
