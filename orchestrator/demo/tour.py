"""`orchestrator demo`: what is to come, the life cycle on generated text, what it found, and where to go on.

The numbers are what this run measured. The text is generated (`world`), so they say nothing about English; they show
that each part works, and what pretraining brings a tiny model in a world that both have to learn from the same data.
"""

import csv
import logging
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pandas
from rich.console import Console

from orchestrator.base.console import duration, show_progress
from orchestrator.base.metric_names import BASELINE
from orchestrator.base.settings import Settings
from orchestrator.demo.demo_data import DemoData, write_demo_data
from orchestrator.demo.world import World, firm_history, join_sentences, life
from orchestrator.inference.pretraining_heads import fill_mask, next_sentence
from orchestrator.registry import Registry
from orchestrator.registry.records import RunRecord
from orchestrator.specs import Spec
from orchestrator.specs.loading import load_spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SPEC = Path(__file__).with_name("pipeline.yaml")
HEAD_TITLES = {"kinds": "classification", "names": "NER", "questions": "QA"}
STAGES = {
    "tokenizer": ("15 s", "learns a vocabulary from 2 MB of generated text"),
    "pretraining": ("2 min", "a tiny BERT learns masked words, and whether B follows A"),
    "kinds": ("25 s", "classification: which kind of thing a sentence speaks of"),
    "names": ("15 s", "NER: finds people, places and firms"),
    "questions": ("30 s", "QA: finds the answers to questions in passages"),
}
"""The pipeline's stages: about how long each takes on two free CPU cores of 2023, and what it does."""
DURATION = "2 to 5 minutes on two CPU cores, more on busy ones"
PICTURE = "what_pretraining_brought.png"
SEED = 0

logger = logging.getLogger(__name__)
FILL_MASK_ANSWER = "founded"
STARTS = {
    "baseline": ("majority baseline", "#999999"),
    "random": ("random weights", "#E69F00"),
    "pretrained": ("pretrained", "#0072B2"),
}
"""Columns of the comparison that are drawn: their names in the legend, and colors that color-blind people tell apart
(Okabe and Ito 2008)."""
CHANCE = 0.5
"""Share of right answers of a model that guesses whether a sentence follows: half of the examples do."""
_BAR_WIDTH = 0.27


def run_demo(settings: Settings, carry_out: Callable[[Spec], RunRecord], options: str = "") -> int:
    """Tell what is to come, write the world, run the pipeline, show its results; 0 when all went well.

    Args:
        carry_out: runs the pipeline's spec with these settings.
        options: global options that name them, for the commands at the end: ` --home DIR`.
    """
    started_at = time.monotonic()
    with show_progress():
        logger.info(opening(settings.home / "demo" / PICTURE))
        data = write_demo_data(settings.home / "demo", SEED)
        logger.info("All text of this demo is generated: a small world of people, places and firms\n  %s", data.corpus)
        record = carry_out(demo_spec(data))
        show_results(settings, record.id, data, options)
        logger.info("the demo took %s", duration(time.monotonic() - started_at))
    return 0


def opening(picture: Path) -> str:
    """Tell what the demo will do and how long it takes, a line per stage, and what there will be at its end."""
    lines = [f"  {stage:11}  {duration:>5}  {what}" for stage, (duration, what) in STAGES.items()]
    return "\n".join(
        [
            f"This takes {DURATION}:",
            *lines,
            "The last three start from the pretrained model, and from random weights.",
            "At the end: a table and a picture of what pretraining brought",
            f"  {picture}",
            "Ctrl-C ends it at any time; what is finished stays.\n",
        ]
    )


def show_results(settings: Settings, run_id: str, data: DemoData, options: str) -> None:
    """Print what a demo's pipeline found."""
    with Registry(settings.registry, read_only=True) as registry:
        runs = {stage.name.removeprefix("demo/"): stage.id for stage in reversed(registry.stages(run_id))}
        table = comparison(registry, {task: runs[task] for task in HEAD_TITLES})
        model = registry.run(runs["pretraining"]).model_folder
        history = registry.metrics.history(runs["pretraining"]).frame()
    assert model is not None, "a completed pretraining run has a model"
    console = Console(highlight=False)
    console.print("What pretraining brought: validation scores of the best recipe from each start\n")
    console.print(table.to_string(index=False, float_format="%.3f"), soft_wrap=True, end="\n\n")
    show_picture(console, table, history, settings.home / "demo" / PICTURE)
    _show_language(console, model, data.world)
    console.print("\nGo on with:")
    for command in (*activation(), *next_commands(runs, data, options)):
        console.print(f"  {command}", markup=False, soft_wrap=True)


def demo_spec(data: DemoData) -> Spec:
    """The demo's pipeline over the files of a generated world."""
    overrides: dict[str, Any] = {
        f"stages.{stage}.corpus.files": [str(data.corpus)] for stage in ("tokenizer", "pretraining")
    }
    for task, files in data.tasks.items():
        overrides |= {f"stages.{task}.task.files.{split}": str(path) for split, path in files.items()}
    return load_spec(SPEC, overrides)


def comparison(registry: Registry, sweeps: dict[str, str]) -> pandas.DataFrame:
    """Compare the best recipe's scores from pretrained and from random weights with the baseline, sweep by sweep."""
    rows = []
    for task, run_id in sweeps.items():
        trials = registry.trials.table(run_id).frame()
        metric = registry.run(run_id).metric
        scores = trials.assign(score=trials[f"metrics.{metric}"], start=trials["params.init_from"])
        best = scores.groupby(scores["start"] == "random")["score"].max()
        rows.append(
            {
                "task": task,
                "head": HEAD_TITLES[task],
                "metric": metric,
                "baseline": scores[f"metrics.{BASELINE}{metric}"].iloc[0],
                "random": best[True],
                "pretrained": best[False],
                "gain": best[False] - best[True],
            }
        )
    return pandas.DataFrame(rows)


def show_picture(console: Console, table: pandas.DataFrame, history: pandas.DataFrame, path: Path) -> None:
    """Write the comparison and the pretraining's curves as a picture, and tell where it lies."""
    draw_findings(table, history).savefig(path, dpi=120)
    console.print("The same as a picture, with the curves of pretraining:")
    console.print(f"  {path}", markup=False, soft_wrap=True)


def fill_mask_example(world: World) -> str:
    """A sentence whose [MASK] follows from how the world is: firms are founded, where people are born."""
    firm = world.firms[world.seed % len(world.firms)]
    return f"{firm.name} was [MASK] by {firm.founder} in {firm.founding_year}."


def next_sentence_example(world: World) -> tuple[str, str, str]:
    """The beginning of a life, what follows it, and sentences from the history of a firm elsewhere in the world."""
    rng = Random(f"example {world.seed}")
    person = world.people[world.seed % len(world.people)]
    firm = next(firm for firm in world.firms if firm.group != person.group and firm.trade is not person.employer.trade)
    story, history = life(person, rng), firm_history(firm, rng)
    return join_sentences(story[:2]).text, join_sentences(story[2:5]).text, join_sentences(history[3:6]).text


def _show_language(console: Console, model: str, world: World) -> None:
    show = partial(console.print, markup=False, soft_wrap=True)
    text = fill_mask_example(world)
    show(f"\n{text}")
    for guess in fill_mask(model, text, top_k=3):
        mark = "  <- true in this world" if guess.token == FILL_MASK_ANSWER else ""
        show(f"  {guess.probability:6.1%}  {guess.token}{mark}")
    first, *others = next_sentence_example(world)
    show(f"\nDoes it follow {first!r}?")
    for second in others:
        show(f"  {next_sentence(model, first, second).probability:6.1%}  {second}")


def next_commands(runs: dict[str, str], data: DemoData, options: str) -> list[str]:
    """Commands to go on with, each ready to be pasted, but for the last one's file.

    Args:
        runs: ids of the demo's stages, by name.
        options: global options that each command needs.
    """
    with data.tasks["kinds"]["test"].open(encoding="utf-8") as file:
        sentence = next(csv.DictReader(file))["text"]
    orchestrator = f"orchestrator{options}"
    return [
        f"{orchestrator} runs list",
        f"{orchestrator} leaderboard",
        f"{orchestrator} runs trials {runs['questions'][:6]}",
        f'{orchestrator} query "metrics.f1 > 0.5 and params.recipe.learning_rate > 1e-3"',
        f'{orchestrator} fill-mask demo/pretraining "She worked for the [MASK] ."',
        f"echo {shlex.quote(sentence)} | {orchestrator} predict demo/kinds",
        f"{orchestrator} init FILE  # a file of your own: writes a spec for it",
    ]


def activation() -> list[str]:
    """The line that makes `orchestrator` a command of this shell, unless it is the one of this installation already."""
    script = Path(sys.prefix, "bin", "activate")
    known = shutil.which("orchestrator")
    if not script.is_file() or (known is not None and Path(known).parent.resolve() == script.parent.resolve()):
        return []
    here = Path.cwd()
    return [f". {shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))}"]


def draw_findings(comparison: pandas.DataFrame, history: pandas.DataFrame) -> "Figure":
    """Draw what pretraining brought each head, and the pretraining's held-out loss and next-sentence accuracy.

    Args:
        comparison: a row per head, as `comparison` makes it.
        history: measurements of the pretraining run, as the registry's `history` gives them.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 5.6), layout="constrained")
    figure.suptitle("What pretraining brought a tiny BERT in a generated world", fontsize=15)
    grid = figure.add_gridspec(2, 2, width_ratios=(3, 2))
    scores = figure.add_subplot(grid[:, 0], title="After fine-tuning: validation scores, best recipe from each start")
    places = range(len(comparison))
    for shift, (column, (label, color)) in zip((-_BAR_WIDTH, 0.0, _BAR_WIDTH), STARTS.items(), strict=True):
        bars = scores.bar([x + shift for x in places], comparison[column], _BAR_WIDTH, label=label, color=color)
        scores.bar_label(bars, fmt="%.2f", padding=2)
    scores.set_xticks(list(places), [f"{row.task}\n{row.head}, {row.metric}" for row in comparison.itertuples()])
    scores.set_ylim(0.0, 1.15)
    scores.legend(loc="upper center", ncols=len(STARTS), frameon=False)
    loss = figure.add_subplot(grid[0, 1], title="Pretraining: loss of masked tokens, held-out text")
    accuracy = figure.add_subplot(grid[1, 1], sharex=loss, title="Pretraining: next sentence or not, share right")
    accuracy.axhline(CHANCE, color=STARTS["baseline"][1], linestyle="--")
    accuracy.annotate("guessing", (0.99, CHANCE), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    for axes, name in ((loss, "mlm_loss"), (accuracy, "nsp_accuracy")):
        points = history[(history["split"] == "validation") & (history["name"] == name)]
        axes.plot(points["step"], points["value"], color=STARTS["pretrained"][1], marker="o", markersize=4)
        for last in points.tail(1).itertuples():
            at = (last.step, last.value)
            axes.annotate(f"{last.value:.2f}", at, xytext=(0, 7), textcoords="offset points", ha="center")
        axes.grid(alpha=0.3)
    loss.set_ylim(bottom=0.0)
    accuracy.set_ylim(0.4, 1.05)
    accuracy.set_xlabel("step")
    for axes in (scores, loss, accuracy):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
