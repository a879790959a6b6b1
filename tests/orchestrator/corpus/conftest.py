"""Resources that the tasks of a data pipeline ask of Ray."""

from typing import Any

import pytest
import ray.remote_function


@pytest.fixture
def asked_cpus(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """CPUs that each task of Ray Data asks for from now on, in the order in which the tasks are submitted."""
    asked: list[float] = []
    submit = ray.remote_function.RemoteFunction._remote

    def note(function: Any, *args: Any, **options: Any) -> Any:
        if function._function_name.startswith("ray.data"):
            cpus = options.get("num_cpus", function._num_cpus)
            asked.append(1.0 if cpus is None else cpus)
        return submit(function, *args, **options)

    monkeypatch.setattr(ray.remote_function.RemoteFunction, "_remote", note)
    return asked
