"""The samples and coefficients of the MAP page for DeiT-B: kept twelfths of both types, accuracy in percent."""

from exporter.depth.predictor import Predictor, Sample

DEPTH = 12

ATTENTION = {11: 81.31, 10: 80.90, 9: 80.20, 8: 78.10, 7: 77.40, 6: 72.69, 5: 69.44, 4: 64.84}
ACTIVATION = {11: 81.07, 10: 80.40, 9: 78.90, 8: 77.80, 7: 76.70, 6: 75.20, 5: 74.50, 4: 73.90}
BOTH = {(11, 11): 80.34, (11, 10): 80.03, (10, 10): 78.88, (10, 9): 78.08, (9, 9): 76.52}

KEPT = {
    (12, 12): 81.80,
    **{(attention, 12): accuracy for attention, accuracy in ATTENTION.items()},
    **{(12, activation): accuracy for activation, accuracy in ACTIVATION.items()},
    **BOTH,
}

SAMPLES = [
    Sample(1 - attention / DEPTH, 1 - activation / DEPTH, accuracy)
    for (attention, activation), accuracy in KEPT.items()
]

# Not the least-squares fit of these samples.
PUBLISHED = Predictor(2, (31.684374, 50.653461, 39.298158, -19.795489, -8.338992, -11.704586))
