"""Values of flags: numbers out of range, words that name nothing, flags that do not go together."""

from tests.hostile.inputs import Hostile, each, keys

MODEL = (
    "--model vit_tiny_patch16_224 --checkpoint {weights} "
    "--model-kwargs img_size=32 patch_size=8 embed_dim=48 num_heads=3 depth=4"
)
COMPILE = f"compile {MODEL} --images {{images}} --rho 0.5 --rounds 0 --out {{work}}/out"
PLAN = "plan --model vit_tiny_patch16_224 --method tome"
CALIBRATE = f"calibrate {MODEL} --images {{images}} --out {{work}}/c.safetensors"
FINETUNE = f"finetune {MODEL} --images {{images}} --eval-images {{images}} --rho 0.5 --out {{work}}/f.safetensors"
TUNE = f"tune {MODEL} --images {{images}} --eval-images {{images}} --max-drop 1 --out {{work}}/tune"
EXPORT = f"export {MODEL} --dense --out {{work}}/m.onnx"
EVAL = "eval {folder} --images {images}"
BENCH = "bench {folder}"
CHECK = "check {folder}"
BUILD = "build {folder}"
SERVE = "serve-config {folder} --out {work}/triton"

HUGE = "9" * 5001  # beyond what Python converts to an integer
# Batches for which no machine has memory.
NO_MEMORY = (
    f"{COMPILE} --batch 2000000000",
    f"{FINETUNE} --batch-size 2000000000",
    f"{BENCH} --batches 1,2000000000",
)

COMBINED = (
    # Amounts
    *each(
        PLAN,
        ("", "plan | got no amount to prune | need one of rho"),
        (f"--rho {HUGE}", "--rho | got '9999"),
        ("--rho 0.5 --mac-reduction 0.4", "rho and mac_reduction | got both"),
        ("--rates 2=0.5 --schedule s.json", "rates and schedule | got both"),
        ("--rho 0.5 --method tome --merges 2", "merges | got 2 for tome"),
        ("--rho 0.5 --merges 0", "--merges | got 0"),
        ("--method matching --rho 0.5 --merges 99", "merges | got 99 | need fewer: 5"),
        ("--rates 2=0.5 --merges 2", "merges | got 2 beside rates"),
        ("--mac-reduction 0", "mac-reduction"),
        ("--mac-reduction 0.999", "--mac-reduction | got 0.999 | need at most 0.9"),
        ("--rates 0=0.5", "rates | got layer 0 for tome"),
        ("--rates 4=1.5", "LAYER=RATE"),
        ("--rates 4=0.5 4=0.6", "--rates | got a name twice"),
        ("--rho 0.5 --model-kwargs class_token=flase", "class_token='flase', a text"),
        ("--rho 0.5 --model-kwargs img_size=224x224", "--model-kwargs img_size"),
        (
            "--rho 0.5 --schedule {work}/none.json",
            "none.json | got No such file or directory",
        ),
        ("--rho 0.5 --acs {work}/none.json", "plan | got --acs for tome | need no ACS"),
    ),
    # Words that name nothing
    *each(
        COMPILE,
        ("--scorer evil", "--scorer | got 'evil' | need one of fused"),
        ("--device nosuch", "device"),
        ("--nosuch 1", "--nosuch 1 | see star-export compile --help"),
        ("--model ''", "model"),
    ),
    *keys(
        COMPILE,
        ("relevance_dtype = 'float16'", "relevance_dtype"),
        ("more_batches = [1, 2000000000]", "an integer from 1 to 4096"),
        ("gamma = 0\nscorer = 'fused'", "gamma"),
        ("training = 3", "training"),
    ),
    # Flags of before, and those of other verbs
    *each(
        COMPILE,
        ("--no-recalibrate", "need --set model.recalibrate=…"),
    ),
    # Choices that do not go together
    *each(
        COMPILE,
        ("--method tome --scorer fused", "tome"),
        (
            "--method star,tome,star",
            "--method | got star,tome,star | need each method once",
        ),
        ("--method star,tome --reduce drop", "reduce | got drop for tome"),
        ("--method star,tome --dry-run", "--dry-run | got 2 methods | need one method"),
        (
            "--method star,tome --schedule s.json",
            "--schedule | got a file beside 2 methods",
        ),
        ("--scorer pairs --reduce drop", "pairs"),
        ("--images {work}/none", "none"),
        ("--images {weights}", "w.safetensors"),
        ("--out {weights}/x", "w.safetensors"),
        ("--out ''", "an empty text"),
        ("--out {work}/\udcff", "UTF-8"),
        ("--recipe {work}/none.toml", "none.toml"),
    ),
    *keys(
        COMPILE,
        ("method = 'a-star'\nround_to = 8", "round_to"),
        ("method = 'star'\nlayout = 'packed'", "layout"),
        ("method = 'a-star'\nlayout = 'packed'\ntarget = 'tensorrt-fp32'", "layout"),
        ("method = 'star'\nalpha = 7", "alpha"),
        ("method = 'star'\ngamma = 3", "gamma | got 3 | need at most 2"),
    ),
    # Flags and keys that the verb does not use are checked too.
    *keys(
        f"{PLAN} --rho 0.5",
        ("preprocess = { crop_pct = '90%' }", "crop_pct"),
    ),
    *each(
        PLAN,
        (
            "--rho 0.5 --checkpoint {work}/none.safetensors",
            "none.safetensors | got no such file | need a checkpoint",
        ),
    ),
    *each(
        CALIBRATE,
        ("--out .", "folder"),
        ("--out /dev/full/x", "/dev/full"),
    ),
    *each(
        FINETUNE,
        ("--preset long", "--preset | got 'long' | need one of paper, short"),
    ),
    *keys(
        FINETUNE,
        (
            "[training]\nwarmup_epochs = 200",
            "warmup_epochs | got 200 | need below epochs",
        ),
        ("[training]\nmin_lr = 1", "min_lr | got 1.0 | need at most lr"),
        ("[training]\nscale = [2, 1]\naugment = 'affine'", "need the lower one first"),
        (
            "[training]\nscale = [0.5, 2]\naugment = 'crop'",
            "need at most 1, being a share of the area",
        ),
        ("[training]\nema_decay = 1", "[training] ema_decay | got 1"),
        ("[training]\nauto_augment = 'nosuch'", "auto_augment"),
        ("[training]\nnosuch = 1", "[training] nosuch | got an unknown key"),
    ),
    *each(
        TUNE,
        ("--max-drop -1", "max-drop"),
        ("--max-drop 1 --max-ms 5", "max_drop and max_ms | got several"),
        ("--speedup 1.5", "need one of max_drop, max_ms, speedup"),
        ("--rounds 0", "--rounds"),
        ("--rates 2=0.5", "--rates"),
        ("--runtime coreml", "runtime"),
    ),
    *each(
        EXPORT,
        ("--schedule {folder}/schedule.json", "--dense"),
    ),
    *each(
        EVAL,
        ("--subset", "class-map"),
        ("--runtime tensorrt", "need an engine"),
        ("--model vit_tiny_patch16_224", "3 models"),
        ("--plugin {work}/none.so", "plugin"),
    ),
    *each(
        BENCH,
        ("--batches 1,-4", "--batches | got [1, -4]"),
        ("--rounds 4", "--rounds | got 4 | need an integer, at least 5"),
        ("--threads 30000", "threads"),
        ("--dense {weights}", "a folder and files"),
    ),
    *each(
        CHECK,
        ("--model vit_tiny_patch16_224 --images {images}", "--model"),
        ("--runtime tensorrt", "engine"),
    ),
    *each(
        BUILD,
        ("--optimization-level 6", "optimization"),
        ("", "--target tensorrt-fp32"),
    ),
    *each(
        SERVE,
        ("--max-batch 65537", "max-batch"),
        ("--out {folder}", "out"),
    ),
    *each(
        "models",
        ("--why ''", "model"),
        ("--why deit_smal_patch16_224", "deit_small_patch16_224"),
    ),
    *each(
        PLAN,
        (f"--rho 0.5 --out {'x' * 300}", "--out"),
        (f"--rho 0.5 --schedule {'x/' * 2048}", "--schedule"),
    ),
    *each(
        "check",
        ("", "folder"),
        ("{work}/none", "none"),
        ("{weights}", "w.safetensors"),
    ),
    *each(
        "bench",
        ("", "an export folder, or --dense FILE --pruned FILE"),
    ),
    *each(
        "eval",
        ("--images {images}", "got no model"),
        (
            "{dense} --images {images} --disagreements {work}/d",
            "--disagreements | got one model",
        ),
        ("{dense} --images {work}/none", "got no such folder or tar file"),
    ),
    *each(
        "build",
        ("", "neither"),
        ("{images} --plugin-source {work}/p", "a folder and"),
    ),
    *each(
        f"depth apply {MODEL} --out {{work}}/d.safetensors",
        ("", "no unit to remove"),
        (
            "--attention 5",
            "attention | got layer 5 | need layers from 1 to 4, the model's depth",
        ),
        ("--attention 1,1", "layer 1 twice"),
        ("--attention 1,2,3,4", "got no block with attention"),
        ("--attention 1 --out .", ".safetensors"),
    ),
    *each(
        "depth choose --model vit_tiny_patch16_224",
        (
            "",
            "depth choose | got no number of units | need --units N, or --attention-units N and",
        ),
        ("--units 4", "--samples FILE"),
        ("--units 4 --attention-units 2", "units in all and units of a type"),
        (
            "--attention-units 1 --samples {work}/none.json --out {work}/d.safetensors",
            "--samples",
        ),
        ("--attention-units 1 --weights last --out {work}/d.safetensors", "--weights"),
    ),
    *each(
        f"depth choose {MODEL} --images {{images}} --out {{work}}/d.safetensors",
        ("--units 2", "--eval-images"),
        ("--attention-units 4", "attention units | got 4 | need at most 3"),
        (
            "--attention-units 1 --keep-attention 9",
            "keep_attention | got layer 9 | need layers from 1 to 4",
        ),
    ),
    *each(
        f"calibrate {MODEL}",
        ("--images {images}", "--out"),
        ("--out {work}/c.safetensors", "--images"),
    ),
    *each(
        "plan --model deit_small_patch16_224 --out {work}/s.json",
        ("--rho 0.7 --method star", "--calibration"),
        ("--rates 4=0.7 --acs a.json", "--calibration"),
    ),
    *each("check --onnx x.onnx", ("--runtime openvino", "--runtime")),
    *each("inspect", ("{images}", "images")),
    *each("nosuch", ("", "nosuch")),
)

FLAGS = (*(Hostile(line, "an integer from 1 to 4096") for line in NO_MEMORY), *COMBINED)
