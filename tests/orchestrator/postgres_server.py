"""A throw-away PostgreSQL server from the machine's own binaries, for tests; reached through a socket in its folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE_S

PATIENCE = ("-t", str(int(PATIENCE_S)))


def find_binaries() -> Path | None:
    """The folder with initdb and pg_ctl: on the PATH, or where Debian puts the newest version."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)


@dataclass(frozen=True)
class Server:
    """A server over its folder; it may be stopped and started again."""

    binaries: Path
    folder: Path
    become: tuple[str, ...]
    """What comes before a command to run it as another user."""

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"postgresql://tester@/postgres?host={self.folder}"

    def create(self) -> None:
        """Make an empty database."""
        options = ("-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self._command("initdb", "-D", str(self.folder / "data"), *options)

    def start(self) -> None:
        """Serve; returns when it answers."""
        settings = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off"
        settings += " -c timezone=Asia/Tokyo"
        # The server must not hold the pipe that collects this command's output.
        log = str(self.folder / "server.log")
        self._command("pg_ctl", "-D", str(self.folder / "data"), "-l", log, "-w", *PATIENCE, "-o", settings, "start")

    def stop(self) -> None:
        """Break off all connections and end."""
        self._command("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", *PATIENCE, "stop")

    def _command(self, program: str, *words: str) -> None:
        command = [*self.become, str(self.binaries / program), *words]
        done = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            log = self.folder / "server.log"
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}{log.read_text() if log.exists() else ''}")


@contextmanager
def running_server(binaries: Path) -> Iterator[Server]:
    """Start a server. PostgreSQL refuses to run as root, so root lends it to another user."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    become: tuple[str, ...] = ()
    if os.geteuid() == 0:
        user = next(entry for name in ("postgres", "nobody") for entry in pwd.getpwall() if entry.pw_name == name)
        os.chown(folder, user.pw_uid, user.pw_gid)
        become = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    server = Server(binaries, folder, become)
    try:
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
