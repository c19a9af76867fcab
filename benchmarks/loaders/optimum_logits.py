"""Print an image's logits through optimum, as JSON: python optimum_logits.py FOLDER IMAGE.

It runs in the environment that compare.py makes.
"""

import json
import sys

from optimum.onnxruntime import ORTModelForImageClassification
from PIL import Image
from transformers import AutoImageProcessor


def main() -> None:
    """Print the logits of the folder's model."""
    folder, image = sys.argv[1:]
    model = ORTModelForImageClassification.from_pretrained(folder)
    processor = AutoImageProcessor.from_pretrained(folder)
    pixels = processor(Image.open(image), return_tensors="pt")
    print(json.dumps(model(**pixels).logits[0].tolist()))


if __name__ == "__main__":
    main()
