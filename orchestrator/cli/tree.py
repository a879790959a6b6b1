"""Every command under its heading, as `orchestrator --help` lists them; and the commands that people try elsewhere."""

from collections.abc import Mapping

HEADINGS: Mapping[str, Mapping[str, str]] = {
    "Begin": {
        "demo": "running.demo",
        "init": "specs.init",
        "plan": "specs.plan",
        "run": "running.run",
        "submit": "running.submit",
        "resume": "running.resume",
        "stop": "running.stop",
        "wait": "running.wait",
    },
    "Look": {
        "runs": "entry.runs",
        "query": "run_listing.query",
        "leaderboard": "ranking.leaderboard",
        "compare": "comparing.compare",
        "report": "reporting.report",
        "board": "reporting.board",
        "cost": "reporting.cost",
        "check": "reporting.check",
    },
    "Use": {
        "models": "models.models",
        "predict": "predicting.predict",
        "evaluate": "evaluating.evaluate",
        "fill-mask": "predicting.fill_mask",
        "next-sentence": "predicting.next_sentence",
        "embed": "predicting.embed",
        "search": "searching.search",
        "serve": "predicting.serve",
    },
    "Data": {
        "corpus": "text.corpus",
        "tokenizer": "text.tokenizer",
        "schema": "specs.schema",
    },
    "House": {
        "db": "house.db",
        "gc": "house.gc",
        "cluster": "house.cluster",
        "doctor": "house.doctor",
        "verify-resume": "house.verify_resume",
        "help": "helping.show_help",
        "completion": "completion.completion",
    },
}
"""Module and name of each command, by heading and by what a person types."""
RUNS: Mapping[str, str] = {
    "list": "run_listing.list_runs",
    "show": "run_showing.show",
    "trials": "runs.trials",
    "metrics": "runs.metrics",
    "plot": "runs.plot",
    "logs": "runs.logs",
    "edit": "run_editing.edit",
    "rm": "run_editing.rm",
    "restore": "run_editing.restore",
    "reproduce": "run_showing.reproduce",
    "export": "runs.export",
}
"""Module and name of each command of `runs`: each is loaded alone."""
PLACES = {name: place for commands in HEADINGS.values() for name, place in commands.items()}

_EDIT = "`orchestrator runs edit RUN"
HINTS: Mapping[str, str] = {
    **dict.fromkeys(("ps", "ls", "list", "history", "experiments"), "`orchestrator runs list`"),
    "status": "`orchestrator runs list`, or `orchestrator runs show RUN`",
    "show": "`orchestrator runs show RUN`, or `orchestrator models show MODEL`",
    "describe": "`orchestrator runs show RUN`",
    **{
        word: f"`orchestrator runs {word} RUN`"
        for word in ("logs", "trials", "metrics", "plot", "rm", "restore", "export")
    },
    **dict.fromkeys(("delete", "remove", "runs delete", "runs remove"), "`orchestrator runs rm RUN`"),
    **dict.fromkeys(("train", "pretrain", "finetune", "fine-tune", "sweep", "tune"), "`orchestrator run SPEC.yaml`"),
    **dict.fromkeys(("kill", "cancel"), "`orchestrator stop RUN`"),
    **dict.fromkeys(("ui", "dashboard", "server"), "`orchestrator board`"),
    **dict.fromkeys(("download", "model"), "`orchestrator models`"),
    **dict.fromkeys(("test", "eval", "score"), "`orchestrator evaluate MODEL TASK`"),
    **{
        f"run {word}": f"`orchestrator runs {word}`"
        for word in ("list", "ls", "ps", "show", "logs", "trials", "metrics", "edit", "rm")
    },
    "version": "`orchestrator --version`",
    "new": "`orchestrator init FILE`",
    "best": "`orchestrator leaderboard TASK`",
    "config": "`orchestrator help environment`",
    **dict.fromkeys(("models rm", "models remove"), "a model goes with its run: `orchestrator runs rm RUN`"),
    **dict.fromkeys(("migrate", "db migrate"), "`orchestrator db upgrade`"),
    **dict.fromkeys(
        ("trash", "removed", "undo"), "`orchestrator runs list --removed`, `orchestrator runs restore RUN`"
    ),
    **dict.fromkeys(("clean", "prune"), "`orchestrator gc`"),
    **dict.fromkeys(("start", "launch"), "`orchestrator run SPEC.yaml`"),
    "runs ls": "`orchestrator runs list`",
    "models ls": "`orchestrator models list`",
    "runs compare": "`orchestrator compare A B`",
    "models diff": "`orchestrator compare A B`",
    "runs status": "`orchestrator runs show RUN`",
    "log": "`orchestrator runs logs RUN`",
    "runs log": "`orchestrator runs logs RUN`",
    "jobs": "`orchestrator runs list --state running`",
    "info": "`orchestrator doctor`",
    "models delete": "a model goes with its run: `orchestrator runs rm RUN`",
    "models card": "`orchestrator models show MODEL -o README.md`",
    "models unalias": "`orchestrator models alias NAME@ALIAS --rm`",
    "models descendants": "`orchestrator models lineage NAME --down`",
    "groups": "`orchestrator leaderboard TASK --all` lists groups, `orchestrator leaderboard --group GROUP` shows one, "
    "`orchestrator compare A B` compares",
    "runs diff": "`orchestrator compare RUN RUN`",
    "diff": "`orchestrator compare A B`",
    "runs query": "`orchestrator query QUERY`",
    "runs trash": "`orchestrator runs list --removed`",
    "runs note": f"{_EDIT} --note TEXT`",
    "runs tag": f"{_EDIT} --tag +TAG`",
    "runs untag": f"{_EDIT} --tag -TAG`",
    **{f"runs {word}": f"{_EDIT} --{word}`" for word in ("pin", "unpin", "archive", "unarchive")},
    **{word: f"{_EDIT} --{word}`" for word in ("pin", "archive")},
    "tag": f"{_EDIT} --tag TAG`",
    "note": f"{_EDIT} --note TEXT`",
    "runs stop": "`orchestrator stop RUN`",
    "runs wait": "`orchestrator wait RUN`",
    "runs resume": "`orchestrator resume RUN`",
    "mine": "`orchestrator search MODEL TASK --pairs FILE`",
    "published": "`orchestrator check`",
    "run --dry-run": "`orchestrator plan SPEC.yaml`",
    "db current": "`orchestrator db check`",
    "db export": "`orchestrator db backup FILE`",
    "db import": "`orchestrator db merge FILE`",
    "cluster pull": "copy the registry here with `ray rsync-down`, then `orchestrator db merge FILE` (`orchestrator "
    "help cluster` has the lines)",
    "cluster up": "`ray up cluster.yaml`",
    "--json": "`-f json`",
    "--csv": "`-f csv`",
}
"""Commands and options of other programs, and of earlier versions of this one, with what to use here."""
