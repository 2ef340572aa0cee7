#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kernels are made of, without a GPU: registers a thread, stack bytes a thread (arrays that could not stay in
registers, and what is spilled), shared memory of a block, and instructions, from the objects that nvcc made.

  tests/gpu/kernels.py BUILD                  prints all kernels of BUILD, by file
  tests/gpu/kernels.py BUILD TABLE            holds them to the table: an error where one has become larger
  tests/gpu/kernels.py BUILD TABLE --write    writes the table anew

A table is of one architecture and has some kernels, one a line: FILE: NAME, and the four numbers. Registers decide how
many blocks a multiprocessor holds, and may grow by 8 before that counts; stack and shared memory may not grow;
instructions by an eighth.
"""
import pathlib
import re
import struct
import subprocess
import sys

CUDA_MACHINE = 190
# Of .nv.info: what belongs to which function (cuobjdump -elf shows the names).
FRAME_SIZE, REGISTERS = 0x11, 0x2F
# The kernels that a step's time hangs on: in f32 and bf16, or as large as they come.
HELD = re.compile(
    r"(layer_norm|batch_norm|softmax|class_loss|pool|fused_attention|optimizer|strided|interpreter|reduce)\.cu")


def cubins(data):
    """The CUDA images in an object of the host's."""
    at = data.find(b"\x7fELF", 1)
    while at >= 0:
        if struct.unpack_from("<H", data, at + 18)[0] == CUDA_MACHINE:
            yield data[at:]
        at = data.find(b"\x7fELF", at + 1)


def kernels(image):
    """(architecture, {mangled name: (registers, stack, shared, instructions)}) of an image."""
    flags = struct.unpack_from("<I", image, 48)[0]
    begin, = struct.unpack_from("<Q", image, 40)
    size, count, names_at = struct.unpack_from("<HHH", image, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, begin + i * size) for i in range(count)]

    def text(section, at):
        first = sections[section][4] + at
        return image[first:image.index(b"\0", first)].decode()

    found, symbols, registers, stack = {}, [], {}, {}
    for section in sections:
        if section[1] == 2:  # symbols
            symbols = [text(section[6], struct.unpack_from("<I", image, section[4] + at)[0])
                       for at in range(0, section[5], section[9])]
    for section in sections:
        name = text(names_at, section[0])
        if name == ".nv.info":
            at, end = section[4], section[4] + section[5]
            while at < end:
                form, attribute, length = struct.unpack_from("<BBH", image, at)
                at += 4
                if form != 4:
                    continue
                if attribute in (FRAME_SIZE, REGISTERS):
                    symbol, value = struct.unpack_from("<II", image, at)
                    (registers if attribute == REGISTERS else stack)[symbols[symbol]] = value
                at += length
    shared = {text(names_at, s[0])[len(".nv.shared."):]: s[5] for s in sections
              if text(names_at, s[0]).startswith(".nv.shared.")}
    for section in sections:
        name = text(names_at, section[0])
        if name.startswith(".text."):
            name = name[len(".text."):]
            found[name] = (registers.get(name, 0), stack.get(name, 0), shared.get(name, 0), section[5] // 16)
    return flags, found


def readable(names):
    """Demangled, without what is the same in all of them."""
    lines = subprocess.run(["c++filt"], input="\n".join(names), text=True, capture_output=True, check=True).stdout
    short = []
    for line in lines.splitlines():
        line = re.sub(r"\(anonymous namespace\)::|peal::(cuda::|comm::|ipc::|functor::)*|^void ", "", line)
        depth, end = 0, len(line)  # the arguments, after the template's
        for i, c in enumerate(line):
            depth += (c == "<") - (c == ">" and line[i - 1] != "-")
            if c == "(" and depth == 0 and i > 0:
                end = i
                break
        short.append(re.sub(r"\s+", " ", line[:end]))
    return short


def of_build(build):
    result = {}
    for path in sorted(pathlib.Path(build).glob("*/CMakeFiles/peal_*_cuda.dir/**/*.cu.o")):
        for image in cubins(path.read_bytes()):
            _, found = kernels(image)
            for name, numbers in zip(readable(found), found.values()):
                key = f"{path.name.removesuffix('.o')}: {name}"
                # Of kernels whose short names are the same, the largest.
                result[key] = max(result.get(key, numbers), numbers, key=lambda n: n[3])
    return result


def in_text(name, numbers):
    return "%4d %6d %6d %6d  %s" % (*numbers, name)


HEAD = "# registers, stack, shared (bytes), instructions; tests/gpu/kernels.py holds these, and writes them anew\n"


def main(arguments):
    write = "--write" in arguments
    arguments = [a for a in arguments if a != "--write"]
    if len(arguments) not in (1, 2) or (write and len(arguments) != 2):
        sys.exit(__doc__)
    here = of_build(arguments[0])
    if not here:
        print(f"kernels.py: no objects of nvcc in {arguments[0]}: nothing was compared", file=sys.stderr)
        sys.exit(77)
    if len(arguments) == 1:
        print("\n".join(in_text(name, numbers) for name, numbers in sorted(here.items())))
        return
    if write:
        rows = [in_text(name, numbers) for name, numbers in sorted(here.items()) if HELD.match(name)]
        pathlib.Path(arguments[1]).write_text(HEAD + "\n".join(rows) + "\n")
        return
    worse, better = [], 0
    for line in pathlib.Path(arguments[1]).read_text().splitlines():
        if line.startswith("#"):
            continue
        *before, name = line.split(None, 4)
        before = [int(b) for b in before]
        if name not in here:
            worse.append(f"{name}: is in the table, and no longer in the build")
            continue
        bounds = (before[0] + 8, before[1], before[2], before[3] * 9 // 8 + 16)
        for what, was, bound, now in zip(("registers", "stack bytes", "shared bytes", "instructions"), before, bounds,
                                         here[name]):
            if now > bound:
                worse.append(f"{name}: {now} {what}, {was} in the table")
            better += now < was
    if worse:
        print("\n".join(worse))
        sys.exit(f"kernels.py: {len(worse)} numbers are worse than in {arguments[1]}; where that is meant, write it anew "
                 f"({sys.argv[0]} {arguments[0]} {arguments[1]} --write)")
    print(f"kernels.py: as in {arguments[1]}, and {better} numbers are smaller")


if __name__ == "__main__":
    main(sys.argv[1:])
