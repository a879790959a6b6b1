"""The command line as a module: `python -m orchestrator` is `orchestrator`."""

from orchestrator.cli import main

if __name__ == "__main__":
    main()
