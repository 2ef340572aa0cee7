// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
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

// The value of a key in a pax header: lines of "length key=value\n".
std::optional<std::string> pax_value(std::string_view lines, const std::string& key) {
  std::optional<std::string> value;
  while (!lines.empty()) {
    std::size_t length = 0;
    const auto [stop, code] = std::from_chars(lines.data(), lines.data() + lines.size(), length);
    const auto digits = static_cast<std::size_t>(stop - lines.data());
    if (code != std::errc{} || length <= digits + 1 || length > lines.size()) break;
    const std::string_view line = lines.substr(digits + 1, length - digits - 2);
    if (line.starts_with(key + "=")) value = line.substr(key.size() + 1);
    lines.remove_prefix(length);
  }
  return value;
}

// Of a size, in a pax header.
std::optional<std::uint64_t> decimal(std::string_view digits) {
  std::uint64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, code] = std::from_chars(digits.data(), end, number);
  if (code != std::errc{} || stop != end || number >> 62 != 0) return std::nullopt;
  return number;
}

bool all_zeros(const Header& header) {
  return std::all_of(header.begin(), header.end(), [](auto byte) { return byte == 0; });
}

}  // namespace

TarReader::TarReader(std::span<const std::uint8_t> content, std::string name)
    : reader_(content, name), name_(std::move(name)) {}

TarReader::TarReader(std::unique_ptr<ByteSource> source, std::string name)
    : reader_(std::move(source), name), name_(std::move(name)) {}

void TarReader::check_got(std::uint64_t got, std::uint64_t wanted) const {
  PEAL_CHECK(got == wanted, "[data] ", name_, ": it ends within ", what_, ", ", wanted - got,
             " bytes early; copy or download the archive again");
}

void TarReader::append(std::vector<std::uint8_t>& to, std::uint64_t count) {
  constexpr std::uint64_t step = std::uint64_t{1} << 20;
  while (count > 0) {
    const std::size_t before = to.size();
    const auto wanted = static_cast<std::size_t>(std::min(count, step));
    to.resize(before + wanted);
    const std::size_t got = reader_.read(std::span(to).subspan(before));
    at_ += got;
    if (got < wanted) check_got(got, count);
    count -= got;
  }
}

void TarReader::skip(std::uint64_t count) {
  const std::uint64_t got = reader_.skip(count);
  at_ += got;
  check_got(got, count);
}

void TarReader::read(std::vector<std::uint8_t>& to) { append(to, std::exchange(left_, 0)); }

std::size_t TarReader::read_some(std::span<std::uint8_t> to) {
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(left_, to.size()));
  const std::size_t got = reader_.read(to.first(wanted));
  at_ += got;
  if (got < wanted) check_got(got, left_);
  left_ -= got;
  return got;
}

// Of an entry that is a name: no file system has one of a megabyte.
std::string TarReader::short_text(std::uint64_t size) {
  PEAL_CHECK(size <= std::uint64_t{1} << 20, "[data] ", name_, ": damaged archive: header ",
             headers_ - 1, " says that a name has ", size,
             " bytes; copy or download the archive again");
  std::vector<std::uint8_t> bytes;
  read(bytes);
  return {bytes.begin(), bytes.end()};
}

// Whether a first block of zeros is the end of an archive without entries.
bool TarReader::zeros_follow() {
  Header second{};
  const std::size_t got = reader_.read(second);
  at_ += got;
  return got == block && all_zeros(second);
}

// Behind the archive comes what says whether all that was read is right: gzip's checksum, the
// status of a program.
void TarReader::read_to_end() {
  at_ += reader_.skip(UINT64_MAX);
  check_not_cut();
}

void TarReader::check_not_cut() const {
  PEAL_CHECK(!reader_.cut_short(), "[data] ", name_,
             ": its gzip stream is cut short; copy or download the archive again");
}

void TarReader::warn_of_links() const {
  if (symbolic_links_ == 0) return;
  log_warning("[data] ", name_, ": symbolic links are left out, of which it has ", symbolic_links_);
}

std::optional<TarEntry> TarReader::next() {
  std::optional<std::string> long_name, long_target;
  std::optional<std::uint64_t> long_size;
  bool sparse = false;
  while (true) {
    skip(std::exchange(left_, 0));
    skip(std::exchange(padding_, 0));
    Header header{};
    const std::size_t got = reader_.read(header);
    at_ += got;
    check_not_cut();
    // Archives end with two blocks of zeros; some with none.
    const bool zeros = got > 0 && all_zeros(header) && (headers_ > 0 || zeros_follow());
    if (got == 0 && headers_ > 0) {
      log_warning("[data] ", name_, ": it stops after ", headers_,
                  " headers without the zeros that end an archive; where entries are missing, copy "
                  "or download it again");
    }
    if (zeros) read_to_end();
    if (got == 0 || zeros) return std::nullopt;
    const auto sum = number_at(header, 148, 8);
    auto size = number_at(header, 124, 12);
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
    name = long_name.value_or(name);
    const bool is_file = type == '0' || type == '\0' || type == '7';
    if (is_file && long_size) size = long_size;
    PEAL_CHECK(type != 'S' && !(is_file && sparse), "[data] ", name_, ": '", name,
               "' is packed with its holes (sparse); pack it without --sparse");
    what_ = concat("'", name, "' (", *size, " bytes)");
    left_ = *size;
    content_at_ = at_;
    padding_ = (block - *size % block) % block;
    if (type == 'L' || type == 'K') {
      const std::string text = short_text(*size);
      (type == 'L' ? long_name : long_target) = text.substr(0, text.find('\0'));
    } else if (type == 'x') {
      const std::string text = short_text(*size);
      sparse = pax_value(text, "GNU.sparse.size") || pax_value(text, "GNU.sparse.realsize");
      if (const auto path = pax_value(text, "path")) long_name = path;
      if (const auto path = pax_value(text, "linkpath")) long_target = path;
      if (const auto digits = pax_value(text, "size")) {
        long_size = decimal(*digits);
        PEAL_CHECK(long_size, "[data] ", name_, ": damaged archive: header ", headers_ - 1,
                   " says that a file has '", *digits,
                   "' bytes; copy or download the archive again");
      }
    } else if (is_file) {
      // Before there was a type of folders they were files with such names.
      const bool folder = type != '7' && name.ends_with('/');
      return TarEntry{folder ? TarEntry::folder : TarEntry::file, name, {}, *size};
    } else if (type == '5') {
      return TarEntry{TarEntry::folder, name, {}, 0};
    } else if (type == '1') {
      return TarEntry{TarEntry::link, name,
                      long_target.value_or(std::string(text_at(header, 157, 100))), 0};
    } else if (type != 'g') {
      symbolic_links_ += type == '2';
      long_name.reset();  // it was that of a symbolic link or device
      long_target.reset();
      long_size.reset();
      sparse = false;
    }
  }
}

}  // namespace peal::data
