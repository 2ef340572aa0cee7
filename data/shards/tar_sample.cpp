// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <peal/autograd/core/error.h>
#include <peal/data/shards/naming.h>
#include <peal/data/shards/tar_sample.h>

#include <algorithm>
#include <charconv>

namespace peal::data {

const TarSample::File* TarSample::find(std::string_view suffix) const {
  for (const File& file : files) {
    if (file.suffix == suffix) return &file;
  }
  return nullptr;
}

std::span<const std::uint8_t> TarSample::operator[](std::string_view suffix) const {
  const File* const file = find(suffix);
  if (file == nullptr) {
    std::vector<std::string_view> there;
    for (const File& each : files) there.push_back(each.suffix);
    fail(concat("[data] ", name(), ": expected a file '", suffix, "', found ",
                fmt::format("{}", fmt::join(there, ", "))));
  }
  return std::span(bytes).subspan(file->at, file->size);
}

std::string_view TarSample::text(std::string_view suffix) const {
  const auto content = (*this)[suffix];
  return {reinterpret_cast<const char*>(content.data()), content.size()};
}

std::int64_t TarSample::number(std::string_view suffix) const {
  constexpr std::string_view blanks = " \t\r\n";
  const std::string_view all = text(suffix);
  std::string_view digits = all;
  digits.remove_prefix(std::min(digits.find_first_not_of(blanks), digits.size()));
  digits = digits.substr(0, digits.find_last_not_of(blanks) + 1);
  std::int64_t number = 0;
  const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  PEAL_CHECK(!digits.empty() && code == std::errc{} && stop == digits.data() + digits.size(),
             "[data] ", name(), ": expected an integer in its file '", suffix, "', got '",
             all.substr(0, 40), "'");
  return number;
}

Sample decoded(const Decode& decode, const TarSample& files, Draw& draw) {
  return naming(files.name(), [&] { return decode(files, draw); });
}

}  // namespace peal::data
