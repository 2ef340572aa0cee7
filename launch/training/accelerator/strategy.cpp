// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/nearest.h>
#include <peal/launch/training/accelerator/strategy.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace peal::launch {
namespace {

const std::vector<std::string_view> strategy_words{"none", "ddp", "zero1", "zero2", "fsdp"};
const std::vector<std::string_view> precision_words{"no", "f32", "bf16", "fp16", "f16"};

std::size_t number_among(const std::vector<std::string_view>& words, const std::string& word,
                         std::string_view what) {
  const auto found = std::find(words.begin(), words.end(), word);
  PEAL_CHECK(found != words.end(), "[accelerator] there is no ", what, " '", word, "'",
             did_you_mean(word, {words.begin(), words.end()}), " (there are ",
             fmt::format("{}", fmt::join(words, ", ")), ")");
  return static_cast<std::size_t>(found - words.begin());
}

// Of words that others have, and that are the program's to write here; empty for all else.
std::string instead_of(const std::string& word) {
  if (word == "dp")
    return "one process with several devices is nn::DataParallel around the model "
           "(nn/parallel/data_parallel.h); with a rank for each device, take 'ddp'";
  if (word == "pipeline" || word == "pp")
    return "the stages are the program's to say: nn::Pipe (nn/parallel/pipeline/pipe.h)";
  if (word == "tp")
    return "which layers are cut is the program's to say: nn::parallelize_module "
           "(nn/parallel/tensor/tensor_parallel.h)";
  return "";
}

}  // namespace

Strategy strategy_of(const std::string& word, int world) {
  const std::string instead = instead_of(word);
  PEAL_CHECK(instead.empty(), "[accelerator] '", word, "' is no strategy of this loop: ", instead);
  const auto strategy = static_cast<Strategy>(number_among(strategy_words, word, "strategy"));
  PEAL_CHECK(strategy != Strategy::none || world == 1,
             "[accelerator] the strategy 'none' is for "
             "one rank, and there are ",
             world,
             ", which would each train a model of their own; "
             "take 'ddp'");
  return strategy;
}

std::string_view word_of(Strategy strategy) {
  return strategy_words.at(static_cast<std::size_t>(strategy));
}

std::optional<DType> precision_of(const std::string& word) {
  const std::size_t number = number_among(precision_words, word, "mixed_precision");
  if (number < 2) return std::nullopt;
  return number == 2 ? DType::bf16 : DType::f16;
}

}  // namespace peal::launch
