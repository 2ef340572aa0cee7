// SPDX-License-Identifier: Apache-2.0
// Text from a language model, token by token: the logits of the last place, made sharper or flatter
// (temperature), cut to the likeliest (top_k; top_p: Holtzman et al., "The curious case of neural
// text degeneration", 2020) and drawn from.
//
//   Tensor text = nn::generate(gpt, prompt, {.max_new_tokens = 100, .temperature = 0.8, .top_k =
//   50});
//
// Keys and values of the tokens before are kept (GptCache), so that a step looks at one token. Once
// a text is longer than the model has positions, the window slides: each step looks at the last
// `positions` tokens anew, the first of them at position 0. All of them have then other positions
// than in the step before, so nothing that was kept holds, and a step costs as much as a whole
// window. Either way the logits are those of the model for the tokens in the window. Thread safety:
// as of the model.
#pragma once

#include <peal/nn/models/gpt.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace peal::nn {

struct GenerateOptions {
  std::int64_t max_new_tokens = 20;
  double temperature = 1;  // logits are divided by it; 0: the likeliest token, nothing is drawn
  std::int64_t top_k = 0;  // of this many likeliest tokens; 0: of all
  double top_p = 1;        // of the likeliest, up to the one with which they reach it together
  // Logits of tokens that the row has, with its prompt, are divided by it where they are above 0,
  // else multiplied (Keskar et al., "CTRL", 2019). First of all of these.
  double repetition_penalty = 1;
  std::optional<std::int64_t> stop_token{};  // ends its row, which is filled up with it
  std::optional<std::uint64_t> seed{};       // of the draws; none: the context's generator
  bool use_cache = true;
};

// The shares that tokens are drawn by, of logits after the repetition penalty: 0 of those that are
// cut off, of equal ones those behind. Error for logits of which none is finite.
std::vector<double> token_shares(std::span<const float> logits, const GenerateOptions& options);

// tokens [B, T] of i64, T above 0 -> [B, T + at most max_new_tokens], in evaluation mode and
// without gradients; the model's mode is as before. Ends early when all rows have. Errors: options
// outside of their ranges, a stop_token that is none of the model's.
Tensor generate(GPT& gpt, const Tensor& tokens, const GenerateOptions& options = {});

}  // namespace peal::nn
