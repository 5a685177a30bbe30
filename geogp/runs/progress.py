"""The listener that receives the progress of a job."""


class ProgressListener:
    """Receiver of a job's stages, progress and warnings; this base class ignores them."""

    def stage(self, text: str) -> None:
        """Receive the name of a stage that begins."""

    def progress(self, text: str, done: int, total: int, note: str) -> None:
        """Receive the progress within a stage."""

    def warn(self, text: str) -> None:
        """Receive a warning, which is also written to run.json."""
