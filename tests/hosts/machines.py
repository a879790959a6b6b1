"""Machines on this machine, and the control machine from which a person works with them.

    with started_site(num_hosts=3) as site:
        site.control.run("ssh 192.0.2.10 hostname")

A host has its own address, process table, name, home, /tmp, /dev/shm, sshd and cron; all hosts have one folder,
/srv/lab. The control machine has the checkout as ~/lab, a private key that the hosts let in, and not /srv/lab. No
machine reaches the outside. Python's packages are those that the tests run with: each machine has a virtual environment
~/venv of its own that finds them, so that `pip install` has nothing to download.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.hosts import first_process, links
from tests.hosts.environment import make_environment
from tests.hosts.links import Link, Links
from tests.waiting import PATIENCE_S, wait_until

NETWORK = "192.0.2"
"""Addresses as in cluster.local.yaml; they are set aside for documentation."""
FIRST_HOST = 10
CONTROL = 9
ROOT = Path(__file__).parents[2]
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".orchestrator", "__pycache__", ".*_cache", "build", "*.egg-info")
PROGRAMS = {
    "unshare": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "/usr/sbin/sshd": "openssh-server",
    "/usr/sbin/cron": "cron",
    "rsync": "rsync",
    "ip": "iproute2",
}
"""Programs that are needed, and the Debian packages that they are in."""


def why_no_machines() -> str:
    """Reason why this machine cannot make others; empty where it can."""
    missing = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program)})
    if missing:
        return f"hosts need what is not installed: {' '.join(missing)}"
    return "" if links.can_be_made() else "hosts need Linux and root, and the right to make network namespaces"


@dataclass(frozen=True)
class Command:
    """A command that was started on a machine."""

    process: "subprocess.Popen[bytes]"
    output: Path

    def finish(self) -> tuple[int, str]:
        """Wait for its end; returns its exit status and what it said, whoever else still holds its output open."""
        status = self.process.wait(PATIENCE_S)
        return status, self.output.read_text(errors="replace")

    def end(self) -> None:
        """End it at once, with what it has started and not left behind."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            process.kill()
        self.process.wait()


@dataclass
class Machine:
    """A machine that can be switched on and off; its disk stays."""

    name: str
    link: Link
    disk: Path
    plan: dict[str, object]
    """Mounts and files that its first process makes (`first_process.py`)."""
    _starter: "subprocess.Popen[str] | None" = None
    _first: int = 0
    """Process id of its first process, as this machine counts."""
    _started: list[Command] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Its address in the network of the machines."""
        return self.link.address

    def power_on(self) -> None:
        """Switch the machine on, and wait until its daemons run."""
        spaces = ["--mount", "--pid", "--uts", "--ipc", "--fork", "--mount-proc", "--kill-child"]
        command = ["unshare", *spaces, sys.executable, first_process.__file__, json.dumps(self.plan)]
        self._starter = subprocess.Popen(
            self.link.enter(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._starter.stdout is not None
        assert self._starter.stderr is not None
        if self._starter.stdout.readline() != "up\n":
            raise AssertionError(f"{self.name} does not start: {self._starter.stderr.read()}")
        (child,) = psutil.Process(self._starter.pid).children()
        self._first = child.pid

    def power_off(self) -> None:
        """Cut the machine's power: every process of it ends at once."""
        if self._starter is None:
            return
        self._starter.kill()
        self._starter.communicate()
        wait_until(lambda: not psutil.pid_exists(self._first), f"{self.name} lives on without power")
        for command in self._started:
            command.process.wait()
        self._starter, self._started = None, []

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a command in a login shell, as at the machine's console; returns its output, messages included.

        Raises: AssertionError where it fails and `check` is set.
        """
        status, said = self.start(command).finish()
        assert not check or status == 0, f"{self.name}: {command}: status {status}\n{said}"
        return said

    def start(self, command: str) -> Command:
        """Start a command in a login shell without waiting for it."""
        output = Path(tempfile.mkstemp(dir=self.disk / "said")[1])
        with output.open("wb") as file:
            process = subprocess.Popen(
                self._inside(command), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )
        started = Command(process, output)
        self._started = [each for each in self._started if each.process.poll() is None] + [started]
        return started

    def add_to_profile(self, lines: str) -> None:
        """Let each login shell on the machine begin with these lines too."""
        with (self.disk / "root" / ".profile").open("a") as profile:
            profile.write(lines)

    def processes(self, title: str) -> list[psutil.Process]:
        """Processes of the machine whose command line has these words."""
        space = _process_space(self._first)
        own = [process for process in psutil.process_iter() if _process_space(process.pid) == space]
        return [process for process in own if title in _command_line(process)]

    def kill(self, title: str) -> None:
        for process in self.processes(title):
            process.kill()

    def _inside(self, command: str) -> list[str]:
        place = self.plan["works_in"]
        shell = ["bash", "--login", "-c", f"cd {place} && {{ {command}\n}}"]
        settings = {"HOME": "/root", "USER": "root", "TERM": "dumb", "LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin"}
        clean = ["env", "-i", *(f"{name}={value}" for name, value in settings.items())]
        spaces = ["--mount", "--pid", "--uts", "--ipc", "--net", "--wd=/"]
        return ["nsenter", "--target", str(self._first), *spaces, *clean, *shell]


@dataclass(frozen=True)
class Site:
    """Machines in one network."""

    control: Machine
    hosts: list[Machine]
    shared: Path
    """The hosts' /srv/lab, as this machine sees it."""


@contextmanager
def started_site(num_hosts: int) -> Iterator[Site]:
    """Make and switch on a control machine and hosts; nothing of them is left after the block."""
    with ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix="site-"))
        undo.callback(shutil.rmtree, folder)
        network = Links(NETWORK, hidden=True)
        undo.callback(network.close)
        site = _build(folder, network, num_hosts)
        for machine in (site.control, *site.hosts):
            undo.callback(machine.power_off)
            machine.power_on()
        yield site


def _build(folder: Path, network: Links, num_hosts: int) -> Site:
    """Lay out disks and links; nothing runs yet."""
    addresses = {"control": CONTROL, **{f"host{1 + n}": FIRST_HOST + n for n in range(num_hosts)}}
    lines = [f"{NETWORK}.{number} {name}" for name, number in addresses.items()]
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    (folder / "shared").mkdir()
    for key in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    machines = [_lay_out(folder, name, network.add(number)) for name, number in addresses.items()]
    control, *hosts = machines
    _furnish_control(folder, control)
    for host in hosts:
        shutil.copy(folder / "key.pub", host.disk / "root" / ".ssh" / "authorized_keys")
    return Site(control, hosts, folder / "shared")


def _lay_out(folder: Path, name: str, link: Link) -> Machine:
    """Write the disk of a machine as it is when it is new."""
    disk = folder / name
    for own in first_process.OWN_FOLDERS:
        (disk / own.lstrip("/")).mkdir(parents=True)
    (disk / "tmp").chmod(0o1777)
    (disk / "said").mkdir()
    (disk / "var" / "spool" / "cron" / "crontabs").mkdir()
    (disk / "etc" / "crontab").touch()
    shutil.copy(folder / "hosts", disk / "etc" / "hosts")
    home = disk / "root"
    home.chmod(0o700)
    (home / ".ssh").mkdir(mode=0o700)
    # As Debian has it: a login shell reads .bashrc, which stops where nobody types.
    (home / ".profile").write_text('if [ -n "$BASH_VERSION" ] && [ -f "$HOME/.bashrc" ]; then . "$HOME/.bashrc"; fi\n')
    (home / ".bashrc").write_text("case $- in *i*) ;; *) return;; esac\n")
    is_control = name == "control"
    make_environment(home / "venv", seen_at="/root/venv", checkout="/root/lab" if is_control else "")
    plan = {
        "name": name,
        "disk": str(disk),
        "shared": "" if is_control else str(folder / "shared"),
        "host_key": str(folder / "host_key"),
        "seen": [sys.base_prefix, sys.prefix],
        "serves": not is_control,
        "works_in": "~/lab" if is_control else "~",
    }
    return Machine(name, link, disk, plan)


def _furnish_control(folder: Path, control: Machine) -> None:
    """Give the control machine a checkout, the key that the hosts let in, and the hosts' own public key."""
    home = control.disk / "root"
    shutil.copytree(ROOT, home / "lab", ignore=NOT_COPIED)
    shutil.copy(folder / "key", home / ".ssh" / "id_ed25519")
    shutil.copy(folder / "key.pub", home / ".ssh" / "id_ed25519.pub")
    kind, key, *_ = (folder / "host_key.pub").read_text().split()
    (home / ".ssh" / "known_hosts").write_text(f"{NETWORK}.* {kind} {key}\n")
    control.add_to_profile('export PATH="$HOME/venv/bin:$PATH"\n')


def _process_space(pid: int) -> str:
    """Name of the process table that a process belongs to; empty when it has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
