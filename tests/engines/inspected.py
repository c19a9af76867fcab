"""DeiT-T in fp16, as the engine inspector of TensorRT 10 and 11 would list its layers; names and fusions are ours.

The keys, the words for types, the kinds of layers and where weights are listed are those of printed lists: of 10.0
(weights among the inputs), of 10.10 (nowhere), and of 11 (as constants; the type apart from the memory format).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TOKENS, DIM, HEADS, DEPTH, CLASSES, PATCH, PIXELS = 197, 192, 3, 12, 1000, 16, 224
GRID, MLP = PIXELS // PATCH, 4 * DIM

VERSIONS = ("10.0", "10.10", "11")
GEMM = "sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize128x64x32_stage4"
NORM = "__myl_CastMeanSubMulMeanAddSqrtDivMulAdd"

Layer = dict[str, Any]
Tensor = dict[str, Any]


def deit_tiny(version: str, batch: int) -> str:
    """The inspector's JSON of one profile."""
    network = _Network(version, batch)
    return json.dumps({"Layers": list(network.layers()), "Bindings": ["images"]})


@dataclass(frozen=True)
class _Network:
    version: str
    batch: int

    def tensor(self, *sizes: int, dtype: str = "Half") -> Tensor:
        if self.version == "11":
            kind = {"Format": "Row major linear", "Datatype": dtype}
        else:
            kind = {"Format/Datatype": dtype}
        return {"Name": "__mye1", "Dimensions": list(sizes), **kind}

    def layer(
        self,
        name: str,
        kind: str,
        inputs: list[Tensor],
        outputs: list[Tensor],
        weights: tuple[Tensor, ...] = (),
        **other: Any,
    ) -> Layer:
        listed = {"Inputs": inputs, "Outputs": outputs}
        if weights and self.version == "10.0":
            factor = self.tensor(1, dtype="Float")
            listed["Inputs"] = [inputs[0], *weights, factor, factor, *inputs[1:]]
        if weights and self.version == "11":
            listed["Constants"] = list(weights)
        common = {"TacticName": name, "StreamId": 0, "Metadata": ""}
        return {
            "Name": f"{name}_myl0_1",
            "LayerType": kind,
            **listed,
            **common,
            **other,
        }

    def linear(
        self, rows: int, depth: int, columns: int, name: str = "", *, adds: bool = False
    ) -> Layer:
        """A product with a bias; one that `adds` reads what it is added to, in front of its factor."""
        added = [self.tensor(rows, columns)] * adds
        return self.layer(
            name or "/fc/MatMul",
            "fusion" if name else "gemm",
            [*added, self.tensor(rows, depth)],
            [self.tensor(rows, columns)],
            (self.tensor(depth, columns), self.tensor(1, columns)),
            TacticName=f"{GEMM}_by_fusion_tactic" if name else GEMM,
        )

    def kgen(self, name: str, inputs: list[Tensor], *outputs: Tensor) -> Layer:
        return self.layer(name, "kgen", inputs, list(outputs))

    def layers(self) -> Iterator[Layer]:
        images = self.tensor(self.batch, 3, PIXELS, PIXELS)
        patches = self.tensor(self.batch, DIM, GRID, GRID)
        rows = self.batch * TOKENS
        tokens = self.tensor(rows, DIM)
        yield self.layer("Reformatting CopyNode", "Reformat", [images], [images])
        yield self.layer(
            "patch_embed",
            "CaskConvolution",
            [images],
            [patches],
            ParameterType="Convolution",
            Kernel=[PATCH, PATCH],
            OutMaps=DIM,
            Groups=1,
            Weights={"Type": "Half", "Count": 3 * PATCH**2 * DIM},
        )
        yield self.layer("dummy_shape_call", "shape_call", [], [])
        yield self.kgen(f"__myl_ReshTranConcAdd{NORM[6:]}", [patches], tokens, tokens)
        for block in range(1, DEPTH + 1):
            yield self.linear(rows, DIM, 3 * DIM)
            yield from self.attention(block, 1 if block == DEPTH else TOKENS)
            left = self.batch if block == DEPTH else rows
            yield self.linear(left, DIM, DIM, "__myl_FcAddAdd", adds=block < DEPTH)
            yield self.kgen(NORM, [self.tensor(left, DIM)], self.tensor(left, DIM))
            yield self.linear(left, DIM, MLP, "__myl_FcAddErfMul")
            yield self.linear(left, MLP, DIM, "__myl_FcAddAdd", adds=True)
            yield self.kgen(NORM, [self.tensor(left, DIM)], self.tensor(left, DIM))
        yield self.linear(self.batch, DIM, CLASSES, "__myl_FcCast")

    def attention(self, block: int, queries: int) -> Iterator[Layer]:
        heads, width = self.batch * HEADS, DIM // HEADS
        query = self.tensor(heads, queries, width)
        turned = self.tensor(heads, width, TOKENS)
        value = self.tensor(heads, TOKENS, width)
        joint = self.tensor(self.batch * TOKENS, 3 * DIM)
        yield self.kgen("__myl_TranSlicReshAddMul", [joint], query, turned, value)
        nodes = ("query_key", "softmax", "weigh_value")
        yield self.layer(
            "_gemm_mha_v2",
            "kgen",
            [query, turned, value],
            [query],
            Metadata="\x1e".join(
                f"[ONNX Layer: context_{block:02d}/{node}]" for node in nodes
            ),
        )
