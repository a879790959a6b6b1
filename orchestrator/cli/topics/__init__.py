"""Topics of `orchestrator help TOPIC`: a short text each, in Markdown, beside this file."""

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Topic:
    """A text about a subject that concerns more than one command."""

    name: str
    text: str

    @property
    def title(self) -> str:
        """The heading of the text."""
        return self.text.splitlines()[0].removeprefix("# ")


def load_topics() -> dict[str, Topic]:
    """Every topic by its name, sorted."""
    found = (file for file in files(__name__).iterdir() if file.name.endswith(".md"))
    topics = (Topic(file.name.removesuffix(".md"), file.read_text(encoding="utf-8")) for file in found)
    return {topic.name: topic for topic in sorted(topics, key=lambda topic: topic.name)}
