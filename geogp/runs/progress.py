"""The listener to the progress of a job."""


class ProgressListener:
    """A listener to a job; this one does nothing."""

    def stage(self, text: str) -> None:
        """Note that a stage begins."""

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        """Note progress within a stage."""

    def warn(self, text: str) -> None:
        """Note a warning, which also goes into run.json."""
