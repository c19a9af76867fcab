"""What OpenVINO makes of a model."""

from collections import Counter

from exporter.core.verify.openvino_runner import OpenVinoRunner


def executed(runner: OpenVinoRunner) -> Counter[tuple[str, str]]:
    """Count the nodes of the graph compiled last by operator and precision: the one they run in, not the file's."""
    request = (
        next(reversed(runner._requests.values()))
        if runner._requests
        else runner._request_of(1)
    )
    nodes = (
        node.get_rt_info()
        for node in request.get_compiled_model().get_runtime_model().get_ops()
    )
    ran = (
        (str(info["layerType"].value), str(info["runtimePrecision"].value))
        for info in nodes
    )
    return Counter(
        (operator, precision) for operator, precision in ran if precision != "undefined"
    )
