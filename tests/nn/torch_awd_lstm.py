# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of torch_awd_lstm.cpp: fastai's AWD-LSTM, language model and classifier (fastai/text/models), in its
names and formulas, with the masks that peal drew in the place of its own; compares logits, losses, gradients, running
statistics and what evaluation gives."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_exchange import load
from torch_models import Comparison

BOUNDS = {"f64": 1e-10, "f32": 1e-5}
MASKS = []  # of the call under way, in the order in which they are drawn; none: nothing is dropped


def masked(x, p):
    """x without what is dropped. Masks of steps lie as peal has them, [1, N, D] (or [N, 1, D])."""
    if not MASKS or p == 0:
        return x
    mask = MASKS.pop(0)
    if x.dim() == 3 and mask.shape[0] == 1 and x.shape[0] != 1:
        mask = mask.transpose(0, 1)
    return x * mask


class WeightDropout(nn.Module):
    def __init__(self, module, p):
        super().__init__()
        self.module, self.p = module, p
        weight = module.weight_hh_l0
        self.weight_hh_l0_raw = nn.Parameter(weight.data)
        del module._parameters["weight_hh_l0"]

    def forward(self, *args):
        raw = self.weight_hh_l0_raw
        self.module._parameters.pop("weight_hh_l0", None)  # to() brings it back
        self.module.weight_hh_l0 = masked(raw, self.p) if self.training else raw.clone()
        return self.module(*args)


class EmbeddingDropout(nn.Module):
    def __init__(self, emb, p):
        super().__init__()
        self.emb, self.p = emb, p

    def forward(self, words):
        weight = masked(self.emb.weight, self.p) if self.training else self.emb.weight
        return F.embedding(words, weight, self.emb.padding_idx)


class RNNDropout(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return masked(x, self.p) if self.training else x


class AWD_LSTM(nn.Module):
    def __init__(self, vocab_sz, emb_sz, n_hid, n_layers, pad_token, hidden_p, input_p, embed_p, weight_p, bidir):
        super().__init__()
        self.emb_sz, self.n_hid, self.n_layers, self.bs = emb_sz, n_hid, n_layers, 1
        self.n_dir = 2 if bidir else 1
        self.encoder = nn.Embedding(vocab_sz, emb_sz, padding_idx=pad_token)
        self.encoder_dp = EmbeddingDropout(self.encoder, embed_p)
        self.rnns = nn.ModuleList([
            WeightDropout(nn.LSTM(emb_sz if i == 0 else n_hid, self.width(i), 1, batch_first=True, bidirectional=bidir), weight_p)
            for i in range(n_layers)])
        self.input_dp = RNNDropout(input_p)
        self.hidden_dps = nn.ModuleList([RNNDropout(hidden_p) for _ in range(n_layers)])

    def width(self, layer):
        return (self.n_hid if layer != self.n_layers - 1 else self.emb_sz) // self.n_dir

    def forward(self, words):
        if words.shape[0] != self.bs:
            self.hidden = [tuple(self.change(h, words.shape[0]) for h in pair) for pair in self.hidden]
            self.bs = words.shape[0]
        output, new = self.input_dp(self.encoder_dp(words)), []
        for i, (rnn, drop) in enumerate(zip(self.rnns, self.hidden_dps)):
            output, h = rnn(output, self.hidden[i])
            new.append(h)
            if i != self.n_layers - 1:
                output = drop(output)
        self.hidden = [tuple(h.detach() for h in pair) for pair in new]
        return output

    def change(self, h, bs):
        if self.bs < bs:
            return torch.cat([h, h.new_zeros(self.n_dir, bs - self.bs, h.shape[2])], dim=1)
        return h[:, :bs].contiguous()

    def reset(self):
        weight = self.encoder.weight
        self.hidden = [tuple(weight.new_zeros(self.n_dir, self.bs, self.width(i)) for _ in range(2)) for i in range(self.n_layers)]


class LinearDecoder(nn.Module):
    def __init__(self, n_out, n_hid, output_p, tie_encoder):
        super().__init__()
        self.decoder = nn.Linear(n_hid, n_out)
        self.output_dp = RNNDropout(output_p)
        self.decoder.weight = tie_encoder.weight

    def forward(self, x):
        dropped = self.output_dp(x)
        return self.decoder(dropped), x, dropped


class SentenceEncoder(nn.Module):
    def __init__(self, bptt, module, pad_idx, max_len):
        super().__init__()
        self.bptt, self.module, self.pad_idx, self.max_len = bptt, module, pad_idx, max_len

    def forward(self, words):
        bs, sl = words.size()
        self.module.reset()
        mask, outs, masks = words == self.pad_idx, [], []
        for i in range(0, sl, self.bptt):
            real_bs = (words[:, i] != self.pad_idx).long().sum()
            o = self.module(words[:real_bs, i:min(i + self.bptt, sl)])
            if sl - i <= self.max_len:
                outs.append(torch.cat([o, o.new_zeros(bs - o.shape[0], *o.shape[1:])]))
                masks.append(mask[:, i:min(i + self.bptt, sl)])
        return torch.cat(outs, dim=1), torch.cat(masks, dim=1)


def masked_concat_pool(output, mask, bptt):
    lens = output.shape[1] - mask.long().sum(dim=1)
    last_lens = mask[:, -bptt:].long().sum(dim=1)
    avg_pool = output.masked_fill(mask[:, :, None], 0).sum(dim=1) / lens.type(output.dtype)[:, None]
    max_pool = output.masked_fill(mask[:, :, None], -float("inf")).max(dim=1)[0]
    return torch.cat([output[torch.arange(0, output.size(0)), -last_lens - 1], max_pool, avg_pool], 1)


class LinBnDrop(nn.Sequential):
    def __init__(self, n_in, n_out, p, act):
        layers = [nn.BatchNorm1d(n_in)] + ([nn.Dropout(p)] if p else []) + [nn.Linear(n_in, n_out, bias=False)]
        super().__init__(*layers, *([nn.ReLU()] if act else []))


class PoolingLinearClassifier(nn.Module):
    def __init__(self, dims, ps, bptt):
        super().__init__()
        self.layers = nn.Sequential(*[LinBnDrop(i, o, p, last) for i, o, p, last in
                                      zip(dims, dims[1:], ps, [True] * (len(dims) - 2) + [False])])
        self.bptt = bptt

    def forward(self, pair):
        return self.layers(masked_concat_pool(*pair, self.bptt))


def part(tensors, prefix):
    return {name[len(prefix):]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def load_state(model, state):
    if list(state) != list(model.state_dict()):
        sys.exit(f"peal has the keys {list(state)}, fastai {list(model.state_dict())}")
    model.load_state_dict(state)


def compare_gradients(same, name, model, tensors, bound):
    gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    found = part(tensors, "grad.")
    assert found.keys() == gradients.keys(), (found.keys(), gradients.keys())
    for key, gradient in found.items():
        same(f"{name}: gradient of {key}", gradient, gradients[key], bound)


def encoder(bidir, on):
    return AWD_LSTM(13, 6, 8, 3, 1, 0.25 * on, 0.4 * on, 0.2 * on, 0.5 * on, bidir)


def language_model(same, folder, bidir, dropped, dtype):
    name = f"language.{bidir}.{dropped}.{dtype}".replace("True", "true").replace("False", "false")
    tensors, _ = load(f"{folder}/{name}")
    bound = BOUNDS[dtype]
    encode = encoder(bidir, dropped)
    model = nn.Sequential(encode, LinearDecoder(13, 6, 0.3 * dropped, encode.encoder)).to(tensors["logits.0"].dtype)
    load_state(model, part(tensors, "state."))
    encode.reset()
    total = 0
    for batch in range(5):
        if batch == 4:
            encode.reset()
        masks = part(tensors, f"mask.{batch}.")
        MASKS[:] = [masks[str(i)] for i in range(len(masks))]
        logits, raw, after = model(tensors[f"tokens.{batch}"])
        assert not MASKS
        loss = F.cross_entropy(logits.view(-1, 13), tensors[f"target.{batch}"].flatten())
        loss = loss + 2 * after.pow(2).mean() + (raw[:, 1:] - raw[:, :-1]).pow(2).mean()
        total = total + loss
        same(f"{name}: logits {batch}", tensors[f"logits.{batch}"], logits, bound)
        same(f"{name}: loss {batch}", tensors[f"loss.{batch}"], loss, bound)
    total.backward()
    compare_gradients(same, name, model, tensors, bound)
    model.eval()
    encode.reset()
    same(f"{name}: evaluation", tensors["eval"], model(tensors["tokens.0"])[0], bound)


def classifier(same, folder, max_len, dtype):
    name = f"classifier.{max_len}.{dtype}"
    tensors, _ = load(f"{folder}/{name}")
    bound = BOUNDS[dtype]
    model = nn.Sequential(SentenceEncoder(4, encoder(False, False), 1, max_len),
                          PoolingLinearClassifier([18, 5, 3], [0, 0], 4)).to(tensors["logits"].dtype)
    load_state(model, part(tensors, "state."))
    logits = model(tensors["tokens"])
    same(f"{name}: logits", tensors["logits"], logits, bound)
    F.cross_entropy(logits, tensors["target"]).backward()
    # Behind a batch norm of four rows the terms nearly cancel: gradients in f32 agree as far as f32 goes.
    compare_gradients(same, name, model, tensors, 20 * bound)
    for key, value in part(tensors, "after.").items():
        same(f"{name}: {key} after", value, model.state_dict()[key], bound)
    same(f"{name}: evaluation", tensors["eval"], model.eval()(tensors["tokens"]), bound)


def main(folder):
    same = Comparison()
    for dtype in BOUNDS:
        for bidir in (False, True):
            for dropped in (False, True):
                language_model(same, folder, bidir, dropped, dtype)
        for max_len in (4, 8, 100):
            classifier(same, folder, max_len, dtype)
    same.finish()


if __name__ == "__main__":
    main(sys.argv[1])
