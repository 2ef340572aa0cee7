// SPDX-License-Identifier: Apache-2.0
// TabularModel: fastai's names and shapes, where each part is left out, and what is refused.
#include <doctest/doctest.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/models/tabular.h>
#include <peal/tests/errors.h>

#include <cmath>
#include <string>
#include <vector>

using namespace peal;
using testing::check_has;
using testing::error_of;

namespace {

std::vector<std::string> keys(const nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.state_dict()) {
    names.push_back(concat(name, " ", tensor.shape()));
  }
  return names;
}

Tensor codes_of(std::int64_t n, const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> codes;
  for (std::int64_t i = 0; i < n; ++i) {
    for (const std::int64_t count : counts) codes.push_back(i * 7 % count);
  }
  return Tensor::from(codes, {n, std::ssize(counts)});
}

}  // namespace

TEST_CASE("a tabular model has fastai's names") {
  const nn::TabularModel model(
      {.embeddings = {{3, 2}, {9, 5}}, .numbers = 4, .layers = {8, 6}, .ps = {0, 0.1}});
  CHECK(keys(model) == std::vector<std::string>{"embeds.0.weight [3, 2]",
                                                "embeds.1.weight [9, 5]",
                                                "bn_cont.weight [4]",
                                                "bn_cont.bias [4]",
                                                "bn_cont.running_mean [4]",
                                                "bn_cont.running_var [4]",
                                                "bn_cont.num_batches_tracked []",
                                                "layers.0.0.weight [8, 11]",
                                                "layers.0.2.weight [8]",
                                                "layers.0.2.bias [8]",
                                                "layers.0.2.running_mean [8]",
                                                "layers.0.2.running_var [8]",
                                                "layers.0.2.num_batches_tracked []",
                                                "layers.1.0.weight [6, 8]",
                                                "layers.1.2.weight [6]",
                                                "layers.1.2.bias [6]",
                                                "layers.1.2.running_mean [6]",
                                                "layers.1.2.running_var [6]",
                                                "layers.1.2.num_batches_tracked []",
                                                "layers.2.0.weight [2, 6]",
                                                "layers.2.0.bias [2]"});
  for (const auto& [name, tensor] : model.state_dict()) {
    if (name == "layers.0.2.bias") CHECK(tensor.to_vector<float>() == std::vector<float>(8, 1e-3f));
    if (name == "embeds.1.weight") CHECK(max(abs(tensor)).item<double>() <= 0.02);
  }
  const nn::TabularModel last({.numbers = 4,
                               .outputs = 1,
                               .layers = {8},
                               .bn_final = true,
                               .bn_cont = false,
                               .lin_first = false});
  CHECK(keys(last)[0] == "layers.0.0.weight [4]");
  CHECK(keys(last)[5] == "layers.0.1.weight [8, 4]");
  CHECK(keys(last).back() == "layers.1.1.weight [1, 8]");
}

TEST_CASE("outputs of categories, of numbers, of both, in a range, and gradients for all") {
  const Tensor codes = codes_of(5, {3, 9}), numbers = randn({5, 4});
  for (const bool with_codes : {true, false}) {
    for (const bool with_numbers : {true, false}) {
      if (!with_codes && !with_numbers) continue;
      nn::TabularSettings settings{.numbers = with_numbers ? 4 : 0,
                                   .outputs = 1,
                                   .layers = {8},
                                   .ps = {0.25},
                                   .embed_p = 0.1,
                                   .y_range = std::pair(2.0, 5.0)};
      if (with_codes) settings.embeddings = {{3, 2}, {9, 5}};
      nn::TabularModel model(settings);
      const Tensor y = model(with_codes ? codes : Tensor(), with_numbers ? numbers : Tensor());
      CHECK(y.shape() == Shape{5, 1});
      for (const float value : y.to_vector<float>()) CHECK(std::abs(value - 3.5f) < 1.5f);
      sum(y * randn({5, 1})).backward();
      for (const Tensor& parameter : model.parameters()) CHECK(parameter.grad().defined());
    }
  }
}

TEST_CASE("what a tabular model refuses") {
  check_has(error_of([] { nn::TabularModel({}); }),
            "TabularModel: expected embeddings or numbers, got neither");
  check_has(error_of([] {
              nn::TabularModel({.numbers = 1, .ps = {0.1, 0.2, 0.3}});
            }),
            "expected a dropout for each of 2 layers, or one for all, got 3");
  nn::TabularModel model({.embeddings = {{3, 2}}, .numbers = 2, .layers = {4}});
  check_has(error_of([&] {
              model(codes_of(5, {3, 3}), randn({5, 2}));
            }),
            "Embeddings: expected codes [N, 1], got shape [5, 2]");
  check_has(error_of([&] {
              model(codes_of(5, {3}), randn({5, 3}));
            }),
            "TabularModel: expected numbers [N, 2], got shape [5, 3]");
  check_has(error_of([&] { model(codes_of(5, {3}), {}); }), "got none");
  check_has(error_of([&] { model(codes_of(5, {4}), randn({5, 2})); }), "index 3 is outside");
}
