"""What each file of an export folder is for."""

from exporter.report.folder_words import readme

MODELS = {"dense": "vit.dense.onnx", "pruned": "vit.star.onnx"}


def test_each_file_has_a_line_the_model_to_serve_first() -> None:
    names = [
        "report.json",
        "inputs/images.batch1.bin",
        "vit.star.sliced.onnx",
        "vit.star.onnx.data",
        *MODELS.values(),
    ]
    lines = readme(names, MODELS).splitlines()
    listed = [line for line in lines if line in {*names, "README.txt", "SHA256SUMS"}]
    assert listed[0] == "vit.star.onnx" and len(listed) == len(names) + 2
    for name in listed:
        assert lines[lines.index(name) + 1].startswith("  ")
