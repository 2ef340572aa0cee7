// SPDX-License-Identifier: Apache-2.0
// lstm, gru and plain recurrences: both directions, with and without biases, of sequences that end
// early.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

struct Cell {
  std::string name;
  std::int64_t gates;
  RecurrentResult (*run)(const Tensor& x, const Tensor& h0, const Tensor& c0,
                         const RecurrentWeights& weights, const RecurrentOptions& options);
};

std::vector<Cell> cells() {
  return {{"lstm", 4, lstm},
          {"gru", 3,
           [](const Tensor& x, const Tensor& h0, const Tensor&, const RecurrentWeights& w,
              const RecurrentOptions& o) { return gru(x, h0, w, o); }},
          {"rnn_tanh", 1,
           [](const Tensor& x, const Tensor& h0, const Tensor&, const RecurrentWeights& w,
              const RecurrentOptions& o) { return rnn_tanh(x, h0, w, o); }},
          {"rnn_relu", 1,
           [](const Tensor& x, const Tensor& h0, const Tensor&, const RecurrentWeights& w,
              const RecurrentOptions& o) { return rnn_relu(x, h0, w, o); }}};
}

struct Sizes {
  std::int64_t steps, batch, input, hidden;
};

// x, h0, c0 (lstm's), and the weights.
std::vector<Input> inputs_of(const Cell& cell, const Sizes& o, bool bias) {
  const std::int64_t wide = cell.gates * o.hidden;
  std::vector<Input> all{{{o.steps, o.batch, o.input}}, {{o.batch, o.hidden}}};
  if (cell.name == "lstm") all.push_back({{o.batch, o.hidden}});
  all.push_back({{wide, o.input}});
  all.push_back({{wide, o.hidden}});
  if (bias) all.insert(all.end(), 2, {{wide}});
  return all;
}

RecurrentResult run(const Cell& cell, const Tensors& x, const RecurrentOptions& options) {
  const std::size_t first = cell.name == "lstm" ? 3 : 2;
  // Small enough that no step makes more of a rounding.
  const auto weight = [&](std::size_t i) {
    return first + i < x.size() ? x[first + i] / 8 : Tensor();
  };
  const RecurrentWeights weights{weight(0), weight(1), weight(2), weight(3)};
  return cell.run(x[0], x[1], cell.name == "lstm" ? x[2] : Tensor(), weights, options);
}

// PyTorch's of this input, and of the sequences [rows] of the states.
std::string torch_of(const Cell& cell, const std::string& input, const std::string& rows,
                     bool bias) {
  const bool two = cell.name == "lstm";
  const std::string h = "x[1][None" + rows + "]";
  return concat("torch.", cell.name, "(", input, ", ",
                two ? concat("(", h, ", x[2][None", rows, "])") : h, ", [w / 8 for w in x[",
                two ? 3 : 2, ":]], ", bias ? "True" : "False", ", 1, 0., False, False, False)");
}

Tensor together(const RecurrentResult& made) {
  Tensors all{flatten(made.y), flatten(made.h)};
  if (made.c.defined()) all.push_back(flatten(made.c));
  return cat(all);
}

void add_whole(std::vector<OpCase>& all, const Cell& cell, const Sizes& o, bool bias,
               bool reverse) {
  const std::string run_torch = torch_of(cell, reverse ? "x[0].flip(0)" : "x[0]", "", bias);
  all.push_back({concat("(lambda o: torch.cat([o[0]", reverse ? ".flip(0)" : "",
                        ".flatten(), *[s.flatten() for s in o[1:]]]))(", run_torch, ")"),
                 [=](const Tensors& x, const Tensors&) {
                   return together(run(cell, x, {.reverse = reverse}));
                 },
                 inputs_of(cell, o, bias)});
}

// Each sequence alone, as long as it is.
void add_lengths(std::vector<OpCase>& all, const Cell& cell, bool reverse) {
  const Sizes o{4, 3, 2, 2};
  const std::string flip = reverse ? ".flip(0)" : "";
  const std::string each = torch_of(cell, concat("x[0][:n, i:i + 1]", flip), ", i:i + 1", true);
  const auto lengths = Tensor::from<std::int64_t>({2, 4, 1}, {3});
  all.push_back({concat("torch.stack([F.pad(", each, "[0][:, 0]", flip,
                        ", (0, 0, 0, 4 - n)) for i, n in enumerate(k[0].tolist())], 1)"),
                 [=](const Tensors& x, const Tensors& k) {
                   return run(cell, x, {.reverse = reverse, .lengths = k[0]}).y;
                 },
                 inputs_of(cell, o, true),
                 {lengths}});
  all.push_back({concat("torch.cat([", each, "[-1][0] for i, n in enumerate(k[0].tolist())])"),
                 [=](const Tensors& x, const Tensors& k) {
                   const auto made = run(cell, x, {.reverse = reverse, .lengths = k[0]});
                   return made.c.defined() ? made.c : made.h;
                 },
                 inputs_of(cell, o, true),
                 {lengths}});
}

}  // namespace

std::vector<OpCase> recurrent_cases() {
  std::vector<OpCase> all;
  for (const Cell& cell : cells()) {
    for (const bool reverse : {false, true}) {
      add_whole(all, cell, {3, 2, 3, 2}, !reverse, reverse);
      add_lengths(all, cell, reverse);
    }
    add_whole(all, cell, {1, 3, 2, 3}, true, false);
    add_whole(all, cell, {3, 1, 1, 3}, true, true);
    // As many rows and columns as the products in panels want, and some more; with the kinks of
    // relu no two types would agree.
    if (cell.name != "rnn_relu") add_whole(all, cell, {8, 9, 5, 70}, true, false);
  }
  return all;
}

}  // namespace peal::test
