// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/kept_index.h>
#include <peal/data/shards/line_index.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace peal::data {
namespace {

constexpr std::string_view kind_of_lines = "lines  1";

LineIndex find_lines(const OpenFile& file) {
  LineIndex index;
  index.file_size = file.stamp().size;
  constexpr std::uint64_t least = 1 << 12, most = 1 << 20;
  std::vector<std::uint8_t> step(
      static_cast<std::size_t>(std::clamp(index.file_size + 1, least, most)));
  std::uint64_t at = 0, number = 1;
  bool begun = false, any_blank = false;  // of the line that is read
  std::uint64_t begin = 0;
  for (std::size_t got = 0; (got = file.read(at, step)) > 0; at += got) {
    const std::span<const std::uint8_t> bytes = std::span(step).first(got);
    PEAL_CHECK(at > 0 || got < 2 || bytes[0] != 0x1f || bytes[1] != 0x8b, "[data] ", file.name(),
               ": its lines cannot be found by their places, as it is gzip; unpack it, or read it "
               "as a stream (JsonStream)");
    const bool mark = at == 0 && got >= 3 && std::memcmp(bytes.data(), "\xef\xbb\xbf", 3) == 0;
    for (std::size_t i = mark ? 3 : 0; i < got;) {
      const std::uint8_t byte = bytes[i];
      if (byte == '\n') {
        any_blank = any_blank || !begun;
        begun = false;
        ++number;
        ++i;
      } else if (!begun && (byte == ' ' || byte == '\t' || byte == '\r')) {
        ++i;
      } else {
        if (!begun) {
          begun = true;
          begin = at + i;
          index.begins.push_back(begin);
          index.numbers.push_back(number);
        }
        const void* const stop = std::memchr(bytes.data() + i, '\n', got - i);
        i = stop == nullptr
                ? got
                : static_cast<std::size_t>(static_cast<const std::uint8_t*>(stop) - bytes.data());
      }
    }
  }
  index.file_size = std::max(index.file_size, at);
  if (!any_blank) index.numbers.clear();
  return index;
}

std::string_view bytes_of(const std::vector<std::uint64_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(std::uint64_t)};
}

bool rises(const std::vector<std::uint64_t>& words) {
  return std::adjacent_find(words.begin(), words.end(), std::greater_equal<>()) == words.end();
}

}  // namespace

std::string LineIndex::to_bytes() const {
  std::string bytes(bytes_of({begins.size(), numbers.size()}));
  bytes += bytes_of(begins);
  return bytes += bytes_of(numbers);
}

std::optional<LineIndex> LineIndex::from_bytes(std::string_view bytes, std::uint64_t file_size) {
  constexpr std::size_t word = sizeof(std::uint64_t);
  if (bytes.size() < 2 * word || bytes.size() % word != 0) return std::nullopt;
  std::vector<std::uint64_t> words(bytes.size() / word);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  const std::uint64_t lines = words[0], numbers = words[1], all = words.size() - 2;
  if (lines > all || all - lines != numbers || (numbers != 0 && numbers != lines)) {
    return std::nullopt;
  }
  LineIndex index;
  const auto middle = words.begin() + 2 + static_cast<std::ptrdiff_t>(lines);
  index.begins.assign(words.begin() + 2, middle);
  index.numbers.assign(middle, words.end());
  index.file_size = file_size;
  const bool inside = index.begins.empty() || index.begins.back() < file_size;
  if (!inside || !rises(index.begins) || !rises(index.numbers)) return std::nullopt;
  return index;
}

LineIndex line_index(const OpenFile& file, std::uint64_t keep_from) {
  const std::uint64_t size = file.stamp().size;
  if (size < keep_from) return find_lines(file);
  std::optional<LineIndex> index;
  kept_index(
      file, kind_of_lines,
      [&] {
        index = find_lines(file);
        return index->to_bytes();
      },
      [&](std::string_view bytes) {
        index = LineIndex::from_bytes(bytes, size);
        return index.has_value();
      });
  return std::move(*index);
}

}  // namespace peal::data
