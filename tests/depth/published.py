"""The samples of the MAP page for DeiT-B, from the script of the papers, and the coefficients printed there."""

from exporter.depth.predictor import Predictor, Sample
from tests.benchmarks.scripts import script

DEPTH = 12

SAMPLES = [
    Sample(row.way.collected[0] / DEPTH, row.way.collected[1] / DEPTH, row.printed[0])
    for row in script("papers/depth_tables.py").TABLES["depth-samples"].rows
]

# Not the least-squares fit of these samples.
PUBLISHED = Predictor(
    2, (31.684374, 50.653461, 39.298158, -19.795489, -8.338992, -11.704586)
)
