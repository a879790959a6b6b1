"""Errors that are answered to whoever asked: a status, the field that is wrong, and what to do."""

import re

from orchestrator.errors import InputError

_LINE = re.compile(r"line (\d+)(?: is |: )")


class RefusedError(Exception):
    """Error for a request that cannot be answered."""

    def __init__(self, status: int, field: str, message: str) -> None:
        super().__init__(status, field, message)
        self.status, self.field, self.message = status, field, message

    @classmethod
    def of_input(cls, error: InputError) -> "RefusedError":
        """An error about `line 3` of what was asked, as one about its third input."""
        message = str(error)
        found = _LINE.match(message)
        if found is None:
            return cls(422, "inputs", message)
        rest = message[found.end() :]
        return cls(422, f"inputs[{int(found.group(1)) - 1}]", f"is {rest}" if " is " in found.group() else rest)
