// SPDX-License-Identifier: Apache-2.0
// Cutting a text into tokens: words, numbers, and marks by themselves. fastai leaves this to spaCy;
// this is a rule of our own, near to it for English:
//
//   "it's well-done, isn't it? 3.5%"  ->  it 's well - done , is n't it ? 3.5 %
//
// Blanks part tokens and are none. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::data {

using Tokens = std::vector<std::string>;

// Of UTF-8, as it is.
Tokens cut_into_words(std::string_view text);

// apply_rules() of rules.h, then cut_into_words().
Tokens tokenize(std::string_view text);

// The same of many, by so many threads; the same tokens for any number of them.
std::vector<Tokens> tokenize_all(const std::vector<std::string>& texts, int threads = 1);

}  // namespace peal::data
