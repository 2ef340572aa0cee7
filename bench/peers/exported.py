# SPDX-License-Identifier: Apache-2.0
# What peal's programs write by --export (launch/training/export_run.h).


def batches(tensors, before, *names):
    """The batches of "train.E" or "test", in order: tensors of these names."""
    k = 0
    while f"{before}.{k}.{names[0]}" in tensors:
        yield [tensors[f"{before}.{k}.{name}"] for name in names]
        k += 1
