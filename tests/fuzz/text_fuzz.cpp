// SPDX-License-Identifier: Apache-2.0
// libFuzzer on texts and on files of byte pairs. Whatever the bytes: rules and words are UTF-8 that
// reads back as it is; a file of merges is a table or a peal::Error; and what byte pairs make of a
// text, the table's own or others, is the text again.
#include <peal/autograd/core/error.h>
#include <peal/data/text/byte_pairs.h>
#include <peal/data/text/rules.h>
#include <peal/data/text/tokenizer.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using peal::data::BytePairs;

void require(bool condition) {
  if (!condition) std::abort();
}

bool is_utf8(std::string_view text) {
  return peal::data::utf8_of(peal::data::characters_of(text)) == text;
}

void check_text(const BytePairs& pairs, std::string_view text) {
  const auto numbers = pairs.encode(text);
  require(numbers.size() <= text.size() && pairs.decode(numbers) == text);
}

const BytePairs& learnt() {
  static const BytePairs pairs =
      BytePairs::train({"the cat sat on the mat, the cat's hat isn't on the mat", "aaaa aaa"}, 20);
  return pairs;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  require(is_utf8(peal::data::apply_rules(text)));
  for (const std::string& token : peal::data::tokenize(text)) {
    require(!token.empty() && is_utf8(token));
  }
  check_text(learnt(), text);
  try {
    check_text(BytePairs::parse(text, "M"), text);
  } catch (const peal::Error&) {
  }
  return 0;
}
