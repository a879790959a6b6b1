"""An object of this process in place of an actor, for tests without Ray; `ray.get` must be the identity then."""

from typing import Any


class LocalActor:
    """An object whose methods are called as an actor's are; `ray.get` then has nothing to wait for."""

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        class Method:
            remote = staticmethod(getattr(self._target, name))

        return Method
