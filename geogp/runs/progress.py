"""How a job tells of its progress."""


class ProgressListener:
    """Hears how a job goes; this one says nothing."""

    def stage(self, text: str) -> None:
        """Take note of a stage that begins."""

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        """Take note of progress within a stage."""

    def warn(self, text: str) -> None:
        """Take note of a warning, which also goes into run.json."""
