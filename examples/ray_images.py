"""Classify a folder of images with Ray Data, and write the answers as Parquet.

    pip install '.[ray]'
    python examples/ray_images.py model.so images/ answers/

The library takes one input of [N, 3, height, width] or [1, 3, height, width], and gives scores.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import ray

import convoy
from convoy.deploy.predictor import Predictor

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("library")
parser.add_argument("images")
parser.add_argument("answers")
parser.add_argument("--actors", type=int, default=0, help="processes with the model; 0: all but one CPU")
parser.add_argument("--cpus", type=int, default=1, help="CPUs of an actor, and so its threads")
parser.add_argument("--ray-cpus", type=int, help="CPUs that Ray counts on this machine")
parser.add_argument("--batch-size", type=int, default=16)
given = parser.parse_args()

os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 lets everything else on the machine go first
ray.init(num_cpus=given.ray_cpus)
# one reads and prepares: without it the actors wait for ever
free = int(ray.cluster_resources()["CPU"]) - 1
actors = given.actors or max(1, free // given.cpus)
if actors * given.cpus > free:
    parser.error(f"{actors} actors of {given.cpus} CPUs leave none to read with; take fewer, or --ray-cpus")

runner = convoy.load(given.library)
(model_input,), (scores, *_) = runner.inputs, runner.outputs
height, width = model_input.shape[2:]


def prepare(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """From pictures, uint8 [rows, height, width, 3], to what the model takes; the path goes along."""
    image = (batch["image"].astype(np.float32) / 255 - MEAN) / DEVIATION
    return {"path": batch["path"], "image": np.ascontiguousarray(image.transpose(0, 3, 1, 2))}


def classify(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = batch[scores.name].reshape(len(batch["path"]), -1)
    return {"path": batch["path"], "label": found.argmax(axis=1), "score": found.max(axis=1)}


images = ray.data.read_images(given.images, size=(height, width), mode="RGB", include_paths=True)
answers = (
    images.map_batches(prepare, batch_size=given.batch_size)
    .map_batches(
        Predictor,
        fn_constructor_kwargs={"library": given.library, "columns": {model_input.name: "image"}},
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=given.cpus,
        batch_size=given.batch_size,
    )
    .map_batches(classify)
)
answers.write_parquet(given.answers)
print("answers:", ray.data.read_parquet(given.answers).count())
