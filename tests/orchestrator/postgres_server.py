"""A throw-away PostgreSQL server from the machine's own binaries, for tests; reached through a socket in its folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def find_binaries() -> Path | None:
    """The folder with initdb and pg_ctl: on the PATH, or where Debian puts the newest version."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)


@contextmanager
def running_server(binaries: Path) -> Iterator[str]:
    """Start a server; yields its URL. PostgreSQL refuses to run as root, so root lends it to another user."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    become: list[str] = []
    if os.geteuid() == 0:
        user = next(entry for name in ("postgres", "nobody") for entry in pwd.getpwall() if entry.pw_name == name)
        os.chown(folder, user.pw_uid, user.pw_gid)
        become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data, log = folder / "data", folder / "server.log"

    def command(*words: str) -> None:
        done = subprocess.run([*become, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(
                f"{words[0]} failed: {done.stdout}{done.stderr}{log.read_text() if log.exists() else ''}"
            )

    settings = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c timezone=Asia/Tokyo"
    try:
        command(
            str(binaries / "initdb"),
            "-D",
            str(data),
            "-U",
            "tester",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )
        # The server must not hold the pipe that collects this command's output.
        command(str(binaries / "pg_ctl"), "-D", str(data), "-l", str(log), "-w", "-o", settings, "start")
        try:
            yield f"postgresql://tester@/postgres?host={folder}"
        finally:
            command(str(binaries / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
