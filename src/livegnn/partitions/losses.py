"""A part that does not answer any more, as an error."""

from livegnn.errors import WorkerUnavailableError


def part_lost(part: int, got: object) -> WorkerUnavailableError:
    """The error for a lost part. got: instead of an answer."""
    return WorkerUnavailableError(
        f"part {part} must answer, got {got}: a server replaces it by itself; else start all parts again"
    )
