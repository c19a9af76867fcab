"""The groups of flags that verbs share; each names fields of the recipe."""

__all__ = ["AMOUNT", "CALIBRATION", "IMAGES", "MEASURED", "MODEL", "SCHEDULE"]

MODEL = ("model", "checkpoint", "num_classes", "model_kwargs", "preprocess", "device")
IMAGES = ("images", "class_map", "max_images", "seed")
CALIBRATION = ("gamma", "protocol", "relevance_dtype")
AMOUNT = ("rho", "mac_reduction", "rates", "schedule")
SCHEDULE = ("method", "scorer", "alpha", "anchors", "round_to")
MEASURED = ("target", "layout", "input_kind", "batch", "rounds", "threads")
