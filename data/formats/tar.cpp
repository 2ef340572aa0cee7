// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/tar.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

namespace peal::data {
namespace {

constexpr std::size_t block = 512;
using Header = std::array<std::uint8_t, block>;

std::string_view text_at(const Header& header, std::size_t at, std::size_t size) {
  const std::string_view field(reinterpret_cast<const char*>(header.data()) + at, size);
  return field.substr(0, std::min(field.find('\0'), size));
}

// Octal digits between blanks, or a big-endian number behind a first bit (GNU).
std::optional<std::uint64_t> number_at(const Header& header, std::size_t at, std::size_t size) {
  std::uint64_t number = 0;
  if ((header[at] & 0x80) != 0) {
    if (header[at] != 0x80) return std::nullopt;
    for (std::size_t i = 1; i < size; ++i) {
      if (number >> 55 != 0) return std::nullopt;
      number = number << 8 | header[at + i];
    }
    return number;
  }
  std::string_view digits = text_at(header, at, size);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  digits = digits.substr(0, digits.find(' '));
  const char* end = digits.data() + digits.size();
  const auto [stop, code] = std::from_chars(digits.data(), end, number, 8);
  if (digits.empty() || code != std::errc{} || stop != end || number >> 62 != 0)
    return std::nullopt;
  return number;
}

// The sum of the header's bytes, of which its own count as blanks.
std::uint64_t sum_of(const Header& header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block; ++i) sum += i >= 148 && i < 156 ? ' ' : header[i];
  return sum;
}

// The path of a pax header: lines of "length key=value\n".
std::optional<std::string> pax_path(std::string_view lines) {
  std::optional<std::string> path;
  while (!lines.empty()) {
    std::size_t length = 0;
    const auto [stop, code] = std::from_chars(lines.data(), lines.data() + lines.size(), length);
    const auto digits = static_cast<std::size_t>(stop - lines.data());
    if (code != std::errc{} || length <= digits + 1 || length > lines.size()) break;
    const std::string_view line = lines.substr(digits + 1, length - digits - 2);
    if (line.starts_with("path=")) path = line.substr(5);
    lines.remove_prefix(length);
  }
  return path;
}

}  // namespace

TarReader::TarReader(std::span<const std::uint8_t> content, std::string name)
    : reader_(content, name), name_(std::move(name)) {}

void TarReader::append(std::vector<std::uint8_t>& to, std::uint64_t count,
                       const std::string& what) {
  constexpr std::uint64_t step = std::uint64_t{1} << 20;
  while (count > 0) {
    const std::size_t before = to.size();
    const auto wanted = static_cast<std::size_t>(std::min(count, step));
    to.resize(before + wanted);
    const std::size_t got = reader_.read(std::span(to).subspan(before));
    count -= got;
    PEAL_CHECK(got == wanted, "[data] ", name_, ": it ends within ", what, ", ", count,
               " bytes early; copy or download the archive again");
  }
}

std::optional<std::string> TarReader::next(std::vector<std::uint8_t>& to) {
  std::optional<std::string> long_name;
  while (true) {
    Header header{};
    const std::size_t got = reader_.read(header);
    PEAL_CHECK(!reader_.cut_short(), "[data] ", name_,
               ": its gzip stream is cut short; copy or download the archive again");
    // Archives end with two blocks of zeros; some with none.
    const bool zeros = std::all_of(header.begin(), header.end(), [](auto b) { return b == 0; });
    if (got == 0 || (zeros && headers_ > 0)) return std::nullopt;
    const auto sum = number_at(header, 148, 8);
    const auto size = number_at(header, 124, 12);
    PEAL_CHECK(
        got == block && sum && size && *sum == sum_of(header), "[data] ", name_,
        headers_ == 0 ? ": not a tar archive, or damaged at its begin: " : ": damaged archive: ",
        "header ", headers_, " has no valid checksum; copy or download the archive again");
    ++headers_;
    const char type = static_cast<char>(header[156]);
    std::string name(text_at(header, 0, 100));
    if (text_at(header, 257, 5) == "ustar" && header[345] != 0 && header[263] == '0') {
      name = concat(text_at(header, 345, 155), "/", name);
    }
    const bool file = type == '0' || type == '\0' || type == '7';
    std::vector<std::uint8_t> aside;
    std::vector<std::uint8_t>& content = file ? to : aside;
    const std::string what = concat("'", long_name.value_or(name), "' (", *size, " bytes)");
    const std::size_t before = content.size();
    append(content, *size, what);
    const std::size_t after = content.size();
    append(content, (block - *size % block) % block, what);
    content.resize(after);
    if (file) return long_name.value_or(name);
    const std::string_view text(reinterpret_cast<const char*>(aside.data()) + before,
                                after - before);
    if (type == 'L') {
      long_name = text.substr(0, text.find('\0'));
    } else if (type == 'x') {
      if (const auto path = pax_path(text)) long_name = path;
    } else if (type != 'g') {
      long_name.reset();  // it was that of a link or folder
    }
  }
}

}  // namespace peal::data
