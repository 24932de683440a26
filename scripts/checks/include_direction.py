"""The include direction: a layer includes only itself and the layers before it in LAYERS.

usage: include_direction.py [ROOT]   (default: the current folder)
Read from the #include lines of src/ and include/. Quoted includes must be written from src/ or include/ and must exist.
"""
import os
import re
import sys

import common

# docs/architecture.md gives the reasons. Layers of one tuple are siblings and do not see each other.
# cuda_stub implements the headers of cuda; nothing includes it.
LAYERS = [("core",), ("device",), ("cuda",), ("cuda_stub",), ("formats",), ("quant",), ("text",), ("kernels",), ("exec",),
          ("models",), ("engine",), ("server", "bench"), ("cli",)]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
EXTERNAL = ("hwy",)  # Highway's own examples, and its foreach_target mechanism, use quotes
# A kernel that does other operations' work, phase by phase, with their device code.
MADE_OF = {"step": ("attention", "qmatmul", "rope")}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def check_file(root, path):
    """Problems of one file, given relative to root."""
    parts = path.split("/")
    public = parts[0] == "include"
    layer = None if public else parts[1]
    problems = []
    text = common.strip(common.read(os.path.join(root, path)), keep_strings=True)
    if not public and layer not in RANK:
        return [f"{path}: '{layer}' is not a layer; the layers are {', '.join(RANK)}"]
    for match in INCLUDE.finditer(text):
        where = f"{path}:{text.count(chr(10), 0, match.start(2)) + 1}"
        quote, name = match.groups()
        target = name.split("/")[0]
        if quote == "<" or target in EXTERNAL:
            continue
        if target == "galvani":
            if not os.path.exists(os.path.join(root, "include", name)):
                problems.append(f"{where}: include/{name} does not exist")
        elif public:
            problems.append(f"{where}: a public header may include only \"galvani/...\" and <...>, not \"{name}\"")
        elif not os.path.exists(os.path.join(root, "src", name)):
            problems.append(f"{where}: src/{name} does not exist; write includes from src/, as \"layer/file.h\"")
        elif target not in RANK:
            problems.append(f"{where}: \"{name}\" is in no layer")
        elif RANK[target] > RANK[layer] or (RANK[target] == RANK[layer] and target != layer):
            problems.append(f"{where}: layer '{layer}' may not include '{target}' (\"{name}\"), which comes later")
        elif (name.endswith(".cuh") and target == "kernels" and
              name.split("/")[1] not in ("common", parts[2], *MADE_OF.get(parts[2], ()))):
            problems.append(f"{where}: device code is shared through kernels/common/ only, not \"{name}\"")
    return problems


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    os.chdir(root)
    files = [f for f in common.tracked(*common.CODE) if f.startswith(("src/", "include/"))]
    if not files:
        common.finish(["no source file found"], "the include direction")
    common.finish([p for f in files for p in check_file(".", f)], f"the includes of {len(files)} files")


if __name__ == "__main__":
    main()
