"""What BoundaryDPT rests on: attention's gates get smaller gradients, and its loss is won back more slowly."""

from dataclasses import replace

import torch
from place import Missing, needed
from prepared import Prepared
from torch.nn.functional import cross_entropy

from exporter.data.batches import first_images
from exporter.data.images import sample
from exporter.data.source import images_at
from exporter.depth.gates import Importance, gated, removable
from exporter.depth.plan import DepthPlan
from exporter.models.registry import trainable
from exporter.vocabulary import UnitType

__all__ = ["GAP", "gradient_gap", "plans_of_one_unit"]

GAP = "gradient, activation ÷ attention"
# Training images whose gradients are measured.
MEASURED_IMAGES = 256


def gradient_gap(row: Prepared) -> dict[str, float | None]:
    """Return how many times larger the gradients of the activations' gates are than those of attention's.

    Each is the root mean square over all layers that can lose the unit and over batches of training images, of the
    cross entropy with the label, before any training (`exporter.depth.gates`).
    """
    vit = row.vit
    if row.way.each is not None:
        raise Missing  # that row is of training
    folder = sample(images_at(needed(row.place.images), vit.spec.num_classes), MEASURED_IMAGES, 0)
    labels = torch.tensor([file.label for file in folder.files], device=vit.device)
    pixels = first_images(folder.files, vit.spec.preprocessing, "float32", MEASURED_IMAGES)
    squares = dict.fromkeys(UnitType, 0.0)
    layers = {unit: [layer - 1 for layer in found] for unit, found in removable(vit).items()}
    with trainable(vit), gated(vit, Importance.unknown(vit.spec.depth)) as student:
        for at in range(0, len(labels), row.batch):
            student.zero_grad()
            images = torch.from_numpy(pixels[at : at + row.batch]).to(vit.device)
            cross_entropy(student(images), labels[at : at + row.batch]).backward()
            for unit, scores in (
                (UnitType.ATTENTION, student.attention),
                (UnitType.ACTIVATION, student.activation),
            ):
                assert scores.grad is not None
                squares[unit] += float(scores.grad[layers[unit]].double().square().mean())
        student.zero_grad()
    return {GAP: (squares[UnitType.ACTIVATION] / squares[UnitType.ATTENTION]) ** 0.5}


def plans_of_one_unit(row: Prepared) -> list[Prepared]:
    """Return the row without each layer's unit of the way's type in turn."""
    unit = row.way.each
    if unit is None:
        raise Missing
    plans = [DepthPlan().also(unit, [layer]) for layer in removable(row.vit)[unit]]
    return [replace(row, way=replace(row.way, depth=plan, each=None)) for plan in plans]
