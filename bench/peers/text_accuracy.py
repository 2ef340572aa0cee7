#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ULMFiT's two stages on reviews beside PyTorch: a language model (fastai's AWD-LSTM), then a classifier on its encoder.
# For each seed peal's program trains and writes first weights, batches and rates; PyTorch trains the same model on the
# same batches with the same rates, its classifier on peal's language model, as peal's own. What is dropped each draws for
# itself. Prints perplexity and accuracy on the test texts after each seed, then the means, and peal's on several ranks of
# smaller batches, which are together as large.
#
#   bench/peers/text_accuracy.py BUILD_FOLDER --data reviews.tar.gz [--texts N] [--seeds N] [--python PROGRAM]
import argparse
import pathlib
import sys
import tarfile
import tempfile

import three_arms
from three_arms import batches

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--data", type=pathlib.Path, required=True, help="archive with train/<class>/ and test/<class>/")
parser.add_argument("--texts", type=int, default=400, help="of each class to train on, the first by name")
parser.add_argument("--emb", type=int, default=64)
parser.add_argument("--hidden", type=int, default=128)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--max-words", type=int, default=4000)
parser.add_argument("--drop", type=float, default=0.5)
parser.add_argument("--epochs", type=int, nargs=2, default=(1, 4), help="of the language model, of the classifier")
parser.add_argument("--batch", type=int, nargs=2, default=(32, 16))
parser.add_argument("--lr", type=float, nargs=2, default=(1e-2, 2e-2))
parser.add_argument("--unfreeze", type=int, default=1)
three_arms.add_options(parser)
options = parser.parse_args()
SEQ_LEN = 72
STAGES = {"lm": 0, "classifier": 1}


def train_in_torch(path):
    import torch
    import torch.nn.functional as F

    tensors, state = three_arms.opened(path)
    import torch_awd_lstm as fastai

    def masked(x, p):  # fastai's: one mask for all steps, for whole words, for single weights
        if p == 0:
            return x
        shape = (x.shape[0], 1, x.shape[2]) if x.dim() == 3 else masks.get(id(x), x.shape)
        return x * x.new_empty(shape).bernoulli_(1 - p).div_(1 - p)

    fastai.masked = masked
    masks = {}  # of an embedding, a row for each word
    torch.manual_seed(int(path.stem.split("_")[-1]))
    lm = "0.encoder.weight" in state
    words = state["0.encoder.weight" if lm else "0.module.encoder.weight"].shape[0]
    output_p, hidden_p, input_p, embed_p, weight_p = [
        options.drop * p for p in ((0.1, 0.15, 0.25, 0.02, 0.2) if lm else (0.4, 0.3, 0.4, 0.05, 0.5))]
    encoder = fastai.AWD_LSTM(words, options.emb, options.hidden, options.layers, 1, hidden_p, input_p, embed_p, weight_p, False)
    masks[id(encoder.encoder.weight)] = (words, 1)
    if lm:
        model = torch.nn.Sequential(encoder, fastai.LinearDecoder(words, options.emb, output_p, encoder.encoder))
        groups = [list(model.named_parameters())]
    else:
        model = torch.nn.Sequential(fastai.SentenceEncoder(SEQ_LEN, encoder, 1, 20 * SEQ_LEN),
                                    fastai.PoolingLinearClassifier([3 * options.emb, 50, 2], [output_p, 0.1], SEQ_LEN))
        groups = [[("weight", encoder.encoder.weight)], *[list(rnn.named_parameters()) for rnn in encoder.rnns],
                  list(model[1].named_parameters())]
    fastai.load_state(model, state)
    encoder.reset()
    rates = tensors["rates"]
    optimizer = three_arms.adamw(groups, model, 0.1, betas=(0.9, 0.99))
    step = 0
    for epoch in range(options.epochs[0 if lm else 1]):
        for g, group in enumerate(groups):
            for _, parameter in group:
                parameter.requires_grad_(lm or epoch >= options.unfreeze or g + epoch + 1 >= len(groups))
        model.train()
        encoder.reset()
        for x, y in batches(tensors, f"train.{epoch}", "x", "y"):
            three_arms.set_rates(optimizer, rates[step])
            step += 1
            optimizer.zero_grad()
            if lm:
                logits, raw, dropped = model(x)
                loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
                loss = loss + 2 * dropped.pow(2).mean() + (raw[:, 1:] - raw[:, :-1]).pow(2).mean()
            else:
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
    model.eval()
    encoder.reset()
    total = count = 0
    with torch.no_grad():
        for x, y in batches(tensors, "test", "x", "y"):
            made = model(x)
            total += (F.cross_entropy(made[0].flatten(0, 1), y.flatten(), reduction="sum") if lm else (made.argmax(1) == y).sum()).item()
            count += y.numel()
    print(f"eval_perplexity {torch.tensor(total / count).exp().item():.4f}" if lm else f"eval_accuracy {total / count:.5f}")


if options.run:
    train_in_torch(options.run)
    sys.exit()


def unpack(folder):
    """The first texts of each class; all of test."""
    with tarfile.open(options.data) as archive:
        names = sorted(name for name in archive.getnames() if name.endswith(".txt"))
        kept = [name for name in names if name.startswith("test/")]
        for label in {name.split("/")[1] for name in kept}:
            kept += [name for name in names if name.startswith(f"train/{label}/")][:options.texts]
        for name in kept:
            archive.extract(name, folder)


seeds = {stage: [] for stage in STAGES}
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    unpack(folder)
    shape = ["--emb", options.emb, "--hidden", options.hidden, "--layers", options.layers, "--seq-len", SEQ_LEN,
             "--max-words", options.max_words]
    for seed in range(options.seeds):
        for stage, at in STAGES.items():
            own = shape if stage == "lm" else ["--from", folder / f"lm_{seed}", "--unfreeze", options.unfreeze]
            program = [options.build / "examples" / "09_train_text", "--stage", stage, "--data", folder, "--drop", options.drop,
                       "--seed", seed, "--num_train_epochs", options.epochs[at], "--learning_rate", options.lr[at], *own]
            save = ["--output_dir", folder / f"lm_{seed}", "--save_strategy", "epoch"] if stage == "lm" else []
            found = three_arms.figures(options, "eval_perplexity|eval_accuracy", program, options.batch[at], folder / f"run_{seed}", *save)
            seeds[stage].append(found)
            print(f"seed {seed}, {stage}:", ", ".join(f"{arm} {value:.4f}" for arm, value in found.items()), flush=True)
for stage, found in seeds.items():
    print(f"{stage}, perplexity:" if stage == "lm" else f"{stage}, accuracy:")
    three_arms.print_means(found, digits=4)
