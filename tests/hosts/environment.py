"""A virtual environment that finds the packages of the one that the tests run in, and downloads nothing."""

import sysconfig
import venv
from importlib.metadata import entry_points
from pathlib import Path

PROJECT = "orchestrator"
"""Command of this project, which is not taken over: the machine's own checkout brings it."""
COMMAND = """\
#!{python}
import sys
from {module} import {first}
sys.exit({function}())
"""
# Nothing is looked for elsewhere, and a checkout is built with the tools that are there.
PIP = "[global]\nno-index = true\nno-build-isolation = false\ndisable-pip-version-check = true\n"


def make_environment(folder: Path, *, seen_at: str, checkout: str = "") -> None:
    """Make an environment, or make it anew.

    Args:
        seen_at: path under which the machine sees the folder.
        checkout: path under which the machine sees a checkout of the project that is installed already; with none, the
            project is there to be installed.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    (site,) = folder.glob("lib/python3.*/site-packages")
    packages = sysconfig.get_path("purelib")
    (site / "packages.pth").write_text(f"{checkout}\n{packages}\n" if checkout else f"{packages}\n")
    (folder / "pip.conf").write_text(PIP)
    for command in entry_points(group="console_scripts"):
        if command.name != PROJECT or checkout:
            script = folder / "bin" / command.name
            first = command.attr.partition(".")[0]
            text = COMMAND.format(
                python=f"{seen_at}/bin/python", module=command.module, first=first, function=command.attr
            )
            script.write_text(text)
            script.chmod(0o755)
