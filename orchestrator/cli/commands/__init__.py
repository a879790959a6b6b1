"""Every command, in the order in which `orchestrator --help` lists them."""

import click

from orchestrator.cli.commands.cluster import cluster
from orchestrator.cli.commands.doctor import doctor
from orchestrator.cli.commands.evaluating import evaluate
from orchestrator.cli.commands.garbage import gc
from orchestrator.cli.commands.life_cycle import stop, wait
from orchestrator.cli.commands.maintenance import db, schema
from orchestrator.cli.commands.mining import mine
from orchestrator.cli.commands.models import models
from orchestrator.cli.commands.predicting import embed, predict
from orchestrator.cli.commands.pretrained_models import fill_mask, next_sentence
from orchestrator.cli.commands.querying import leaderboard, query
from orchestrator.cli.commands.relaying import relay
from orchestrator.cli.commands.running import demo, plan, resume, run
from orchestrator.cli.commands.runs import runs
from orchestrator.cli.commands.searching import search
from orchestrator.cli.commands.submitting import submit
from orchestrator.cli.commands.text import corpus, tokenizer
from orchestrator.cli.commands.verifying import verify_resume

ALL: tuple[click.Command, ...] = (
    demo,
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
    models,
    evaluate,
    predict,
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
    relay,
)
