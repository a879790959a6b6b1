"""The tutorial docs/cluster.md, followed on hosts of a site as a person would follow it: block by block, word by word.

python -m tests.hosts.tutorial --hosts 3 > transcript.md        # what was typed, what came back, and the seconds
"""

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.hosts.machines import ROOT, Command, Machine, Site, started_site, why_no_machines
from tests.hosts.ray_cluster import CLUSTER_FILE, TESTS_WANT, RayCluster, edit_cluster_file, wait_for_dashboard
from tests.hosts.submitted_run import write_text
from tests.waiting import wait_until

PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
NUM_HOSTS = 4
"""Hosts of the page."""
LEFT_OPEN = "# in a second terminal, left open\n"
AGAIN = "# again, until it says: "
USER = {"lab@": "root@", "ssh_user: lab": "ssh_user: root"}
"""The hosts' one user is root."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_LOG_OF_RAY_UP = re.compile(
    r"[-\d]{10} [:,\d]{12}\t\w+ (commands|updater|command_runner|node_provider|cli_output_helpers|usage_lib)\.py:"
    "|Shared connection to |Warning: Permanently added "
)
_NUM_SHOWN = 15
"""Lines of an output that are shown of its beginning, and of its end."""
_ADDRESS = "192.0.2.{}"
_FIRST = 10


def blocks_of(page: str, num_hosts: int) -> list[tuple[str, str]]:
    """Blocks of a page for a person who has so many hosts: (`bash` or `yaml`, text). The page itself has four."""
    addresses = [_ADDRESS.format(_FIRST + number) for number in range(NUM_HOSTS)]
    changed = {
        " ".join(addresses): " ".join(addresses[:num_hosts]),
        " ".join(addresses[1:]): " ".join(addresses[1:num_hosts]),
        ", ".join(addresses[1:]): ", ".join(addresses[1:num_hosts]),
        f"{NUM_HOSTS} local.cluster.node": f"{num_hosts} local.cluster.node",
        **USER,
    }
    for theirs, ours in changed.items():
        assert theirs in page, f"the page does not have {theirs!r} any more"
        page = page.replace(theirs, ours)
    return re.findall(r"```(bash|yaml)\n(.*?)```", page, re.DOTALL)


class Reader:
    """A person who does what the page says, at the control machine.

    Args:
        tell: told each block as soon as it is done: its kind, its text, what came back, and the seconds it took.
    """

    def __init__(self, site: Site, tell: Callable[[str, str, str, float], None] = lambda *told: None) -> None:
        self.control: Machine = site.control
        self.said: list[str] = []
        """Output of each command."""
        self._tell = tell
        self._second_terminal: Command | None = None

    def follow(self, kind: str, text: str) -> None:
        """Do what one block of the page asks for."""
        began, num_said = time.monotonic(), len(self.said)
        if kind == "yaml":
            self._edit(dict(re.findall(r"(\w+): (.+)", text)))
        elif text.startswith(LEFT_OPEN):
            self._second_terminal = self.control.start(f"exec {text.removeprefix(LEFT_OPEN)}")
            wait_for_dashboard(self.control)
        elif text.startswith(AGAIN):
            wanted, _, command = text.removeprefix(AGAIN).partition("\n")
            wait_until(lambda: wanted in self._run(command), f"{command} never says {wanted}")
        else:
            self._run(text)
        said = self.said[-1] if len(self.said) > num_said else ""
        self._tell(kind, text, said, time.monotonic() - began)

    def close(self) -> None:
        """Close the second terminal."""
        if self._second_terminal:
            self._second_terminal.end()

    def _run(self, command: str) -> str:
        self.said.append(self.control.run(command))
        return self.said[-1]

    def _edit(self, values: dict[str, str]) -> None:
        file = self.control.disk / "root" / "lab" / CLUSTER_FILE
        file.write_text(edit_cluster_file(file.read_text(), values))


@contextmanager
def prepared_site(num_hosts: int) -> Iterator[Site]:
    """Make hosts, and the text that the page's reader has; nothing of them is left after the block."""
    with started_site(num_hosts) as site:
        for machine in (site.control, *site.hosts):
            machine.add_to_profile(TESTS_WANT)
        write_text(site.control.disk / "root" / "lab" / "data" / "pretrain")
        yield site


def keep_up(cluster: RayCluster) -> None:
    """Let each host bring its Ray back, as the page says it for hosts without systemd."""
    (block,) = [text for _, text in blocks_of(PAGE, len(cluster.site.hosts)) if "ray-node.sh" in text]
    cluster.control.run(block)


def print_block(kind: str, text: str, said: str, seconds: float) -> None:
    """Print a block as a part of a transcript in Markdown, without what `ray up` logs and the middle of long output."""
    print(f"{'edited in the cluster file' if kind == 'yaml' else f'{seconds:.0f} s'}\n\n```{kind}\n{text}```\n")
    plain = _ESCAPES.sub("", said.replace("\r", "\n"))
    lines = [line.rstrip() for line in plain.splitlines() if line.strip() and not _LOG_OF_RAY_UP.match(line)]
    if len(lines) > 2 * _NUM_SHOWN:
        lines[_NUM_SHOWN:-_NUM_SHOWN] = [f"… {len(lines) - 2 * _NUM_SHOWN} lines …"]
    if lines:
        print("\n".join(["```text", *lines, "```\n"]), flush=True)


def main() -> None:
    """Follow the page on so many hosts, and print a transcript."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, choices=range(2, NUM_HOSTS + 1), default=NUM_HOSTS)
    num_hosts = parser.parse_args().hosts
    if reason := why_no_machines():
        sys.exit(reason)
    with prepared_site(num_hosts) as site:
        reader = Reader(site, print_block)
        try:
            for kind, text in blocks_of(PAGE, num_hosts):
                reader.follow(kind, text)
        finally:
            reader.close()


if __name__ == "__main__":
    main()
