"""Values of flags that nobody can use, a row a cause; tests/cli/test_settings_first.py has what each verb needs."""

from tests.hostile.inputs import Hostile, each, keys

MODEL = (
    "--model vit_tiny_patch16_224 --checkpoint {weights} "
    "--model-kwargs img_size=32 patch_size=8 embed_dim=48 num_heads=3 depth=4"
)
COMPILE = f"compile {MODEL} --images {{images}} --rho 0.5 --rounds 0 --out {{work}}/out"
PLAN = "plan --model vit_tiny_patch16_224 --method tome"
CALIBRATE = f"calibrate {MODEL} --images {{images}} --out {{work}}/c.safetensors"
FINETUNE = f"finetune {MODEL} --images {{images}} --eval-images {{images}} --rho 0.5 --out {{work}}/f.safetensors"
DEPTH = f"{MODEL} --out {{work}}/d.safetensors"

HUGE = "9" * 5001  # beyond what Python converts to an integer

FLAGS: tuple[Hostile, ...] = (
    *each(
        PLAN,
        (f"--rho {HUGE}", "--rho | got '9999"),
        ("--method matching --rho 0.5 --merges 99", "merges | got 99 | need fewer: 5"),
        ("--rho 0.5 --acs {work}/none.json", "plan | got --acs for tome | need no ACS"),
        ("--rho 0.5 --method star --out {work}/s.json", "--calibration"),
    ),
    *each(
        f"{PLAN} --rho 0.5 --model-kwargs",
        ("img_size=3 patch_size=4 dynamic_img_size=True", "a grid of 0 × 0 patches"),
        ("depth=200000", "depth=200000 | need a number from 1 to 1000"),
        ("checkpoint_path=weights", " or --checkpoint FILE"),
    ),
    *each(
        "plan --model vit_small_patch16_dinov3 --rho 0.5",
        ("--model-kwargs norm_eps=[1]", "need a number above 0 and below 1"),
    ),
    *each(
        COMPILE,
        # for which no machine has memory
        ("--batch 2000000000", "an integer from 1 to 4096"),
        ("--device nosuch", "device"),
        ("--method star,tome --schedule s.json", "--schedule | got a file beside 2"),
        ("--out {work}/\udcff", "UTF-8"),
    ),
    *keys(
        COMPILE,
        ("[prune]\nmethod = 'a-star'\nround_to = 8", "round_to"),
        (f"[model]\npreprocess = {{ crop_pct = {10**400} }}", "too large"),
    ),
    *each(FINETUNE, ("--preset long", "--preset | got 'long' | need one of paper")),
    *keys(FINETUNE, ("[training]\nauto_augment = 'nosuch'", "auto_augment")),
    *each(
        "eval {folder} --images {images}",
        ("--model vit_tiny_patch16_224", "3 models"),
        ("--plugin {work}/none.so", "plugin"),
    ),
    *each("bench {folder}", ("--dense {weights}", "a folder and files")),
    *each("check --onnx x.onnx", ("--runtime openvino", "--runtime")),
    *each("build", ("", "neither"), ("{folder}", "--target tensorrt-fp32")),
    *each("serve-config {folder}", ("--out {folder}", "out")),
    *each(
        f"depth apply {DEPTH}",
        ("", "no unit to remove"),
        ("--attention 5", "got layer 5 | need layers from 1 to 4, the model's depth"),
    ),
    *each(
        f"depth choose {DEPTH} --attention-units 1",
        ("--samples {work}/none.json", "--samples"),
        ("--images {images} --keep-attention 9", "keep_attention | got layer 9"),
    ),
)
