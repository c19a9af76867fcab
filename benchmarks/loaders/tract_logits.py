"""Print an image's logits through tract, as JSON: python tract_logits.py MODEL IMAGES.npy.

It runs in the environment that compare.py makes.
"""

import json
import sys

import numpy as np
import tract


def main() -> None:
    """Print the logits of the first image."""
    file = sys.argv[1]
    images = np.load(sys.argv[2])
    model = tract.onnx().load(file)
    model.set_input_fact(0, f"batch,{','.join(map(str, images.shape[1:]))},f32")
    (logits, *_) = model.into_model().into_runnable().run([images])
    print(json.dumps(logits.to_numpy()[0].tolist()))


if __name__ == "__main__":
    main()
