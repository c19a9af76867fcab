"""The groups of flags that verbs share; each names fields of the recipe."""

__all__ = ["CALIBRATION", "IMAGES", "MODEL", "SCHEDULE"]

MODEL = ("model", "checkpoint", "num_classes", "model_kwargs", "preprocess", "device")
IMAGES = ("images", "class_map", "max_images", "seed")
CALIBRATION = ("gamma", "protocol", "relevance_dtype")
SCHEDULE = ("method", "rho", "mac_reduction", "scorer", "alpha", "anchors", "round_to")
