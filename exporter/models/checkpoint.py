"""What a checkpoint says of its network, whoever wrote it."""

from pathlib import Path

from exporter.core.base.errors import CheckpointError
from exporter.models.identity import read_identity


def check_weights(path: Path | None) -> None:
    """Raise CheckpointError for a file that is not there."""
    if path is not None and not path.exists():
        raise CheckpointError(path, "no such file", "a checkpoint")


def recorded_name(checkpoint: Path | None) -> str:
    """Return the name of the network that a checkpoint says, "" for none; errors as of `check_weights`."""
    if checkpoint is None:
        return ""
    check_weights(checkpoint)
    identity = read_identity(checkpoint)
    if identity is not None:
        return identity.name
    from exporter.models.training_record import training_record  # noqa: PLC0415  (it imports PyTorch)

    return training_record(checkpoint).architecture
