"""Scaling of a pretraining step over hosts whose links are limited, beside a simple model of it.

    python -m benchmarks.scaling --size mini --batch-size 32 --hosts 1 2 --mbit 0 1000 300

Hosts are network namespaces (Linux, root, iproute2); each has one worker with one thread. The global batch is the same
at any number of hosts, as in a run. A step is forward, loss, backward, an all-reduce of the gradients over gloo that
begins during backward, and AdamW. The configurations take turns, round after round; what is told is the median over
rounds of the slowest worker's seconds. 0 Mbit/s stands for no limit.

The model: a worker computes its share of the batch as fast as one that is alone on the machine, half as fast where two
workers share a core, and so on; then each sends 2 (W - 1) / W times the bytes of the gradients (ring all-reduce;
Patarasuk and Yuan 2009, section 3) at the link's rate. What leaves during backward makes a step faster than that. Delay
is not in it: a step sends few messages, and the delays of a machine room are 1/1000 of a step. Efficiency is
t(1) / (W t(W)).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import torch
import torch.distributed

from benchmarks._pretraining_batches import make_batch, packed_loss
from benchmarks.training_step import ENVIRONMENT
from bert_core.config import SIZES, BertConfig
from bert_core.heads.pretraining import BertForPreTraining
from bert_core.optimization import build_optimizer
from orchestrator.pretraining.collectives import GradientBuckets, Worker
from tests.hosts.links import Link, Links, can_be_made

PORT = 29500
STEPS = 3
"""Steps of a worker in each round, of which the median counts."""
WIDTH = 128
"""Tokens of a sequence, padding included."""


@dataclass(frozen=True)
class Group:
    """Workers that train together, one on each host."""

    links: list[Link]
    processes: "list[subprocess.Popen[str]]"

    def step_s(self) -> float:
        """Seconds of a step of the slowest worker."""
        for process in self.processes:
            _pipe(process.stdin).write("go\n")
            _pipe(process.stdin).flush()
        return max(float(_pipe(process.stdout).readline()) for process in self.processes)


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@contextmanager
def started_group(size: str, examples: int, num_hosts: int) -> Iterator[Group]:
    """Start workers on so many new hosts, each with its share of the examples."""
    links = Links("192.0.2", hidden=True)
    hosts = [links.add() for _ in range(num_hosts)]
    processes = []
    try:
        for rank, host in enumerate(hosts):
            task = {"size": size, "examples": examples // num_hosts, "rank": rank, "num_workers": num_hosts}
            command = [sys.executable, "-m", "benchmarks.scaling", "--worker", json.dumps(task), hosts[0].address]
            environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "TORCH_CPP_LOG_LEVEL": "ERROR"}
            processes.append(
                subprocess.Popen(
                    host.enter(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
                )
            )
        yield Group(hosts, processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        links.close()


def work(size: str, examples: int, rank: int, num_workers: int, first_address: str) -> None:
    """Train as one worker: for each line that comes, some steps, and the median of their seconds."""
    if num_workers > 1:
        meeting = f"tcp://{first_address}:{PORT}"
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=num_workers)
    worker = Worker(rank, num_workers)
    config = BertConfig.from_size(size)
    model = BertForPreTraining.from_config(config)
    gradients, optimizer = GradientBuckets(model.parameters(), worker), build_optimizer(model, 1e-4)
    batch = make_batch(config, examples, WIDTH)
    for _ in sys.stdin:
        seconds = []
        for _ in range(STEPS):
            began = time.perf_counter()
            optimizer.zero_grad()
            gradients.backward(packed_loss(model, batch), is_last=True)
            gradients.finish()
            optimizer.step()
            seconds.append(time.perf_counter() - began)
        print(statistics.median(seconds), flush=True)


def gradient_bytes(size: str) -> int:
    """Bytes of all gradients of a model, in fp32."""
    with torch.device("meta"):
        return 4 * sum(each.numel() for each in BertForPreTraining(BertConfig.from_size(size)).parameters())


def all_reduce_s(num_workers: int, size: str, mbit_per_s: float) -> float:
    """The model's seconds of an all-reduce; none without a limit."""
    sent = 2 * (num_workers - 1) / num_workers * gradient_bytes(size)
    return sent * 8 / (mbit_per_s * 1e6) if mbit_per_s else 0.0


def compare(size: str, batch_size: int, counts: list[int], rates: list[float], rounds: int) -> None:
    """Measure all numbers of hosts at all rates, and print the table."""
    cores = len(os.sched_getaffinity(0))
    alone = measure_alone(size, [batch_size // count for count in (1, *counts)], rounds)
    print(
        f"{size}, {gradient_bytes(size) / 1e6:.1f} MB of gradients, {batch_size} examples a step, {cores} cores\n"
        f"{'hosts':>5} {'Mbit/s':>8} {'measured':>10} {'model':>8} {'efficiency':>10} {'model':>6}"
    )
    for count in counts:
        for rate, measured in measure(size, batch_size, count, rates if count > 1 else rates[:1], rounds).items():
            compute = alone[batch_size // count] * max(1.0, count / cores)
            modelled = compute + all_reduce_s(count, size, rate)
            ideal = alone[batch_size] / count
            print(
                f"{count:>5} {rate or 'none':>8} {measured:>8.3f} s {modelled:>6.3f} s "
                f"{ideal / measured:>10.0%} {ideal / modelled:>6.0%}",
                flush=True,
            )


def measure_alone(size: str, examples: list[int], rounds: int) -> dict[int, float]:
    """Median seconds of a step of one worker that is alone on the machine, by its examples."""
    return {number: measure(size, number, 1, [0.0], rounds)[0.0] for number in sorted(set(examples))}


def measure(size: str, examples: int, num_hosts: int, rates: list[float], rounds: int) -> dict[float, float]:
    """Median seconds of a step by the links' rate; the rates take turns."""
    with started_group(size, examples, num_hosts) as group:
        group.step_s()  # the first steps build kernels and connections
        times: dict[float, list[float]] = {rate: [] for rate in rates}
        for _ in range(rounds):
            for rate in rates:
                for link in group.links:
                    link.limit(rate) if rate else link.unlimit()
                times[rate].append(group.step_s())
    return {rate: statistics.median(seconds) for rate, seconds in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="mini", metavar="SIZE")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--hosts", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--mbit", nargs="+", type=float, default=[0.0, 1000.0, 300.0], help="Rates of the links.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):  # read when a process starts
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **ENVIRONMENT})
    if arguments.worker:
        task, first_address = arguments.worker
        work(**json.loads(task), first_address=first_address)
    elif not can_be_made():
        print("skipped: network namespaces need Linux, root and iproute2")
    else:
        compare(arguments.size, arguments.batch_size, arguments.hosts, arguments.mbit, arguments.rounds)


if __name__ == "__main__":
    main()
