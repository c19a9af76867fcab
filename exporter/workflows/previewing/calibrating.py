"""Say what a calibration would do."""

from pathlib import Path

from exporter.depth.checkpoint import describe
from exporter.files import PathLike
from exporter.workflows.previewing.record import Preview, preview_of
from exporter.workflows.previewing.work import Work, calibration_work
from exporter.workflows.recipes.job import Job

__all__ = ["preview_calibration"]


def preview_calibration(job: Job, out: PathLike) -> Preview:
    """Return what `calibrate` would do for a job; no image is read, and nothing is written.

    Raises:
        UserError: There are no images, or the settings do not suit the model's shape.
    """
    job.check_named()
    spec, path = describe(job.model).spec, Path(out)
    work = (Work("model", 0, 0.0), calibration_work(job, spec))
    return preview_of(spec, work, path.parent, (path.name,))
