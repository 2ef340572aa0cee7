// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/in_parallel.h>
#include <peal/data/text/byte_alphabet.h>
#include <peal/data/text/byte_pairs.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <queue>
#include <tuple>

namespace peal::data {
namespace {

constexpr std::string_view end_word = "<|endoftext|>";

std::uint64_t pair_key(std::int64_t left, std::int64_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint64_t>(right);
}

}  // namespace

BytePairs::BytePairs(const std::vector<Merge>& merges) {
  std::unordered_map<std::string, std::int64_t> numbers;
  for (std::size_t number = 0; number < 256; ++number) {
    tokens_.emplace_back(1, static_cast<char>(byte_alphabet().byte_of_number[number]));
    numbers.emplace(tokens_.back(), number);
  }
  for (const auto& [left, right] : merges) {
    const auto a = numbers.find(left), b = numbers.find(right);
    PEAL_CHECK(a != numbers.end() && b != numbers.end(), "[data] byte pairs: merge ", made_.size(),
               " is of '", written_bytes(left), "' and '", written_bytes(right), "', of which '",
               written_bytes(a == numbers.end() ? left : right), "' is no token before it");
    const std::int64_t number = add(a->second, b->second);
    PEAL_CHECK(numbers.emplace(left + right, number).second, "[data] byte pairs: merge ",
               made_.size() - 1, " makes '", written_bytes(left + right),
               "', which is a token before it");
  }
}

std::int64_t BytePairs::add(std::int64_t left, std::int64_t right) {
  const std::int64_t number = std::ssize(tokens_);
  tokens_.push_back(token(left) + token(right));
  made_.emplace_back(left, right);
  merged_.emplace(pair_key(left, right), number);
  return number;
}

BytePairs BytePairs::train(const std::vector<std::string>& texts, std::int64_t merges) {
  std::map<std::string, std::int64_t, std::less<>> words;
  for (const std::string& text : texts) {
    for (const std::string_view word : cut_for_byte_pairs(text)) {
      const auto found = words.find(word);
      found == words.end() ? words.emplace(word, 1), 0 : ++found->second;
    }
  }
  BytePairs learnt({});
  std::vector<std::pair<TokenIds, std::int64_t>> split;
  for (const auto& [word, times] : words) {
    TokenIds numbers;
    for (const char byte : word) numbers.push_back(byte_alphabet().number(byte));
    split.emplace_back(std::move(numbers), times);
  }
  while (std::ssize(learnt.made_) < merges) {
    std::unordered_map<std::uint64_t, std::int64_t> counts;
    for (const auto& [numbers, times] : split) {
      for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
        counts[pair_key(numbers[i], numbers[i + 1])] += times;
      }
    }
    const auto tokens_of = [&](std::uint64_t key) {
      return std::tie(learnt.tokens_[key >> 32], learnt.tokens_[key & 0xFFFFFFFFu]);
    };
    auto best = counts.end();
    for (auto at = counts.begin(); at != counts.end(); ++at) {
      if (best == counts.end() || at->second > best->second ||
          (at->second == best->second && tokens_of(at->first) < tokens_of(best->first))) {
        best = at;
      }
    }
    if (best == counts.end() || best->second < 2) break;
    const auto left = static_cast<std::int64_t>(best->first >> 32);
    const auto right = static_cast<std::int64_t>(best->first & 0xFFFFFFFFu);
    const std::int64_t number = learnt.add(left, right);
    for (auto& [numbers, times] : split) {
      std::size_t to = 0;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const bool pair = i + 1 < numbers.size() && numbers[i] == left && numbers[i + 1] == right;
        numbers[to++] = pair ? number : numbers[i];
        i += pair ? 1 : 0;
      }
      numbers.resize(to);
    }
  }
  return learnt;
}

const std::string& BytePairs::token(std::int64_t number) const {
  PEAL_CHECK(number >= 0 && number < std::ssize(tokens_),
             "[data] byte pairs: expected the number of a token, 0 to ", tokens_.size() - 1,
             ", got ", number);
  return tokens_[static_cast<std::size_t>(number)];
}

// The symbols of a word are a list with gaps; the pairs that could merge wait in a queue, the one
// that was learnt first in front, of equals the leftmost. A pair whose symbols have changed since
// is passed over. So a word of n bytes takes n log n, whatever it is.
void BytePairs::merge_word(std::string_view bytes, TokenIds& numbers) const {
  struct Symbol {
    std::int64_t number, previous, next;
  };
  struct Pair {
    std::int64_t makes, at, left, right;
    bool operator>(const Pair& other) const {
      return std::tie(makes, at) > std::tie(other.makes, other.at);
    }
  };
  const std::int64_t count = std::ssize(bytes);
  const ByteAlphabet& alphabet = byte_alphabet();
  std::vector<Symbol> symbols;
  for (std::int64_t i = 0; i < count; ++i) {
    symbols.push_back({alphabet.number(bytes[static_cast<std::size_t>(i)]), i - 1, i + 1});
  }
  const auto symbol = [&](std::int64_t i) -> Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> waiting;
  const auto offer = [&](std::int64_t at) {
    if (at < 0 || symbol(at).next >= count) return;
    const std::int64_t left = symbol(at).number, right = symbol(symbol(at).next).number;
    const auto found = merged_.find(pair_key(left, right));
    if (found != merged_.end()) waiting.push({found->second, at, left, right});
  };
  for (std::int64_t i = 0; i < count; ++i) offer(i);
  while (!waiting.empty()) {
    const Pair pair = waiting.top();
    waiting.pop();
    Symbol& here = symbol(pair.at);
    if (here.number != pair.left || here.next >= count || symbol(here.next).number != pair.right) {
      continue;
    }
    Symbol& gone = symbol(here.next);
    here = {pair.makes, here.previous, gone.next};
    gone.number = -1;
    if (here.next < count) symbol(here.next).previous = pair.at;
    offer(here.previous);
    offer(pair.at);
  }
  for (std::int64_t i = 0; i < count; i = symbol(i).next) numbers.push_back(symbol(i).number);
}

TokenIds BytePairs::encode(std::string_view text) const {
  TokenIds numbers;
  for (const std::string_view word : cut_for_byte_pairs(text)) merge_word(word, numbers);
  return numbers;
}

std::vector<TokenIds> BytePairs::encode_all(const std::vector<std::string>& texts,
                                            int threads) const {
  std::vector<TokenIds> all(texts.size());
  in_parallel(std::ssize(texts), threads, [&](std::int64_t i) {
    all[static_cast<std::size_t>(i)] = encode(texts[static_cast<std::size_t>(i)]);
  });
  return all;
}

std::string BytePairs::decode(const TokenIds& numbers) const {
  std::string text;
  for (const std::int64_t number : numbers) {
    text += number == end_of_text() ? std::string(end_word) : token(number);
  }
  return text;
}

BytePairs BytePairs::parse(std::string_view text, std::string_view name) {
  std::vector<Merge> merges;
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view words = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.ends_with('\r')) words.remove_suffix(1);
    if (words.empty() || (line == 1 && words.starts_with("#version"))) continue;
    const std::size_t blank = words.find(' ');
    const std::string where = concat(name, ", line ", line);
    PEAL_CHECK(blank != words.npos && blank > 0 && blank + 1 < words.size() &&
                   words.find(' ', blank + 1) == words.npos,
               "[data] ", where, ": expected two words, got '", words, "'");
    merges.emplace_back(read_bytes(words.substr(0, blank), where),
                        read_bytes(words.substr(blank + 1), where));
  }
  try {
    return BytePairs(merges);
  } catch (const Error& error) {
    fail(concat("[data] ", name, ": no merges of byte pairs: ", error.what()));
  }
}

BytePairs BytePairs::load(const std::filesystem::path& path) {
  const std::vector<std::uint8_t> content = read_file(path);
  return parse({reinterpret_cast<const char*>(content.data()), content.size()}, path.string());
}

void BytePairs::save(const std::filesystem::path& path) const {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : made_) {
    text += written_bytes(token(left)) + " " + written_bytes(token(right)) + "\n";
  }
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace peal::data
