"""The option --compiled of scripts/gpu/convolution-plans: checks the machine code of the kernels that cuDNN compiles at
run time."""

import base64
import collections
import concurrent.futures
import hashlib
import json
import os
import sys

from built_kernels import adds_floats_atomically, cuobjdump_for, kernels_of

TOOL = "convolution-plans"
CONTROL = "control"

# A kernel of a compiled plan: its name, and its float atomics with their numbers, "REDG.E.ADD.F32 (4)".
Kernel = collections.namedtuple("Kernel", "name atomics")


def images_of(plan, place):
    """The machine code of each kernel in a plan's JSON."""
    try:
        images = [base64.b64decode(kernel["cubin"]) for kernel in plan["engine"]["payload"]["kernels"]]
    except (KeyError, TypeError, ValueError) as error:
        sys.exit(f"{TOOL}: {place}: the plan has no machine code where cuDNN 9.19 has it ({error!r})")
    if not images:
        sys.exit(f"{TOOL}: {place}: the plan has no kernels")
    return images


def kernels_in_image(cuobjdump, path):
    """The Kernels of a file with machine code."""
    kernels = []
    for _, name, code in kernels_of(cuobjdump, path):
        if not code:
            sys.exit(f"{TOOL}: {cuobjdump} lists no instructions of {name}")
        counts = collections.Counter(o for _, o, _ in code if adds_floats_atomically(o))
        kernels.append(Kernel(name, ", ".join(f"{o} ({n})" for o, n in counts.items())))
    if not kernels:
        sys.exit(f"{TOOL}: {cuobjdump} lists no kernels of {path.name}")
    return kernels


def place_of(answer):
    return f"eng{answer['engine']}  {answer['gpu']}"


def errors_of(gpus, answers, kernels):
    """The errors of the check: float atomics in a plan, and GPUs for which the check is blind because it found
    none in the control. `kernels` has the Kernels of each answer."""
    errors, seeing = {}, set()
    for answer, found in zip(answers, kernels):
        for kernel in found:
            if not kernel.atomics:
                continue
            if answer["problem"] == CONTROL:
                seeing.add(answer["gpu"])
            else:
                errors.setdefault(
                    f"{place_of(answer)}  {kernel.name}  {kernel.atomics}  <- adds with float atomics",
                    answer["problem"],
                )
    lines = [f"{error}, first in {problem}" for error, problem in errors.items()]
    blind = [gpu for gpu in gpus if gpu not in seeing]
    return lines + [f"{gpu}  <- the check is blind: it found no float atomics in the control" for gpu in blind]


def table_of(answers, kernels):
    """The lines of the summary: one per engine and GPU."""
    rows = collections.defaultdict(lambda: [0, set()])
    for answer, found in zip(answers, kernels):
        row = rows[answer["problem"] == CONTROL, answer["engine"], answer["gpu"]]
        row[0] += 1
        row[1] |= set(found)
    lines = ["engine  gpu     plans  float atomics"]
    for (is_control, engine, gpu), (plans, found) in sorted(
        rows.items(), key=lambda row: (row[0][:2], int(row[0][2].removeprefix("sm_")))
    ):
        atomics = sorted({kernel.atomics for kernel in found if kernel.atomics})
        lines.append(
            f"eng{engine:<3}  {gpu:6}  {plans:5}  {'; '.join(atomics) or 'none'}"
            + ("  (control)" if is_control else "")
        )
    return lines


def check(outputs, folder):
    """Checks the plans that the program wrote into the folder; `outputs` are the outputs of its parts. Returns an
    exit code."""
    cuobjdump = cuobjdump_for(TOOL)
    lines = [[json.loads(line) for line in output.splitlines()] for output in outputs]
    facts, answers = lines[0][0], [answer for _, *rest in lines for answer in rest]
    paths = {}  # hash of an image -> its file: many plans have the same kernels
    images = []
    for answer in answers:
        plan = json.loads((folder / answer["file"]).read_text())
        mine = []
        for image in images_of(plan, place_of(answer)):
            key = hashlib.sha256(image).hexdigest()
            path = paths.setdefault(key, folder / f"{key}.cubin")
            path.write_bytes(image)
            mine.append(path)
        images.append(mine)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        unique = list(paths.values())
        known = dict(zip(unique, pool.map(lambda path: kernels_in_image(cuobjdump, path), unique)))
    kernels = [[kernel for path in mine for kernel in known[path]] for mine in images]
    errors = errors_of(facts["gpus"], answers, kernels)
    print("\n".join([*table_of(answers, kernels), "", *errors]))
    tested = [answer for answer in answers if answer["problem"] != CONTROL]
    print(
        f"{facts['cudnn']}: {len(tested)} plans compiled at run time, and {len(answers) - len(tested)} of the "
        f"control; {len(unique)} different images; {len(errors)} errors"
    )
    if not tested:
        print(f"{TOOL}: cuDNN compiled no plan: is libcuda_stand_in first on LD_LIBRARY_PATH, and NVRTC installed?")
    return 1 if errors or not tested else 0
