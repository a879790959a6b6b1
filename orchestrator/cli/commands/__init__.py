"""Every command, in the order in which `orchestrator --help` lists them."""

import click

from orchestrator.cli.commands.boarding import board
from orchestrator.cli.commands.checking import check, published
from orchestrator.cli.commands.cluster import cluster
from orchestrator.cli.commands.completing import completion
from orchestrator.cli.commands.costing import cost
from orchestrator.cli.commands.doctor import doctor
from orchestrator.cli.commands.drafting import init
from orchestrator.cli.commands.evaluating import evaluate
from orchestrator.cli.commands.garbage import gc
from orchestrator.cli.commands.helping import show_help
from orchestrator.cli.commands.life_cycle import stop, wait
from orchestrator.cli.commands.maintenance import db, schema
from orchestrator.cli.commands.mining import mine
from orchestrator.cli.commands.models import models
from orchestrator.cli.commands.predicting import embed, predict
from orchestrator.cli.commands.pretrained_models import fill_mask, next_sentence
from orchestrator.cli.commands.querying import query
from orchestrator.cli.commands.ranking import leaderboard
from orchestrator.cli.commands.relaying import relay
from orchestrator.cli.commands.reporting import report
from orchestrator.cli.commands.running import demo, plan, resume, run
from orchestrator.cli.commands.runs import runs
from orchestrator.cli.commands.searching import search
from orchestrator.cli.commands.seed_groups import groups
from orchestrator.cli.commands.serving import serve
from orchestrator.cli.commands.submitting import submit
from orchestrator.cli.commands.text import corpus, tokenizer
from orchestrator.cli.commands.verifying import verify_resume

ALL: tuple[click.Command, ...] = (
    demo,
    init,
    run,
    plan,
    submit,
    resume,
    stop,
    wait,
    verify_resume,
    runs,
    query,
    leaderboard,
    groups,
    report,
    board,
    cost,
    check,
    published,
    models,
    evaluate,
    predict,
    serve,
    fill_mask,
    next_sentence,
    embed,
    search,
    mine,
    corpus,
    tokenizer,
    schema,
    gc,
    db,
    cluster,
    doctor,
    show_help,
    completion,
    relay,
)
