"""Every benchmark of this folder with its default arguments, each as a process of its own: `python -m benchmarks`.

Exit status 1 when one of them fails; the others still run.
"""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    failed = []
    for path in sorted(FOLDER.glob("[!_]*.py")):
        print(f"== {path.stem}", flush=True)
        if subprocess.run(
            [sys.executable, "-m", f"{FOLDER.name}.{path.stem}"], cwd=FOLDER.parent, env=environment
        ).returncode:
            failed.append(path.stem)
    print("\nNumbers of record, with the command and the machine, belong in benchmarks/results/WHAT_HARDWARE_DATE.md")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
