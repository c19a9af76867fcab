"""Numbers that this code gives, which a change must not move; `published` has those of others."""

# Patches left after each layer.
DEIT_B_COUNTS_AT_07 = (196, 162, 139, 124, 108, 108, 102, 78, 55, 48, 37, 30)

# Without scoring, by model and rho.
GMACS = {
    "deit_base_patch16_224": {
        0.9: 14.007,
        0.8: 11.224,
        0.75: 10.223,
        0.7: 9.282,
        0.65: 8.434,
        0.6: 7.703,
    },
    "deit_small_patch16_224": {
        0.9: 3.595,
        0.8: 2.864,
        0.75: 2.577,
        0.7: 2.339,
        0.6: 1.960,
    },
    "deit_tiny_patch16_224": {0.9: 0.957, 0.8: 0.739, 0.7: 0.590, 0.6: 0.483},
    "lvvit_m": {0.9: 8.813, 0.8: 6.672, 0.7: 5.490, 0.6: 4.758},
    "lvvit_s": {0.9: 5.054, 0.8: 4.061, 0.7: 3.407, 0.65: 3.194, 0.6: 2.989},
}

# Of the manual schedules of `published.MANUAL`, in their order.
MANUAL_GMACS = (7.80, 10.96, 10.00)
