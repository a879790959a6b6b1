"""Tasks whose examples are queries: the collection in which their documents are to be found."""

from orchestrator.errors import InputError
from orchestrator.tasks import Task
from orchestrator.tasks.types.beir import RetrievalReader


def collection_of(task: Task) -> RetrievalReader:
    """The reader of the collection that a task is searched in. Raises: InputError for a task without one."""
    if not isinstance(task.reader, RetrievalReader):
        raise InputError(f"task {task.id} is no retrieval: it has no documents to find; name a collection")
    return task.reader
