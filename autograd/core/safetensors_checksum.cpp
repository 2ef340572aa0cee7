// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/safetensors_checksum.h>

#include <zlib.h>

namespace peal {
namespace {

constexpr std::string_view kind = "crc32:";
constexpr std::size_t digit_count = 8;

}  // namespace

void RunningChecksum::add(const void* data, std::size_t bytes) {
  crc_ = static_cast<std::uint32_t>(::crc32_z(crc_, static_cast<const Bytef*>(data), bytes));
}

std::string RunningChecksum::digits() const { return fmt::format("{:08x}", crc_); }

std::string checksum_text(std::string_view digits) { return concat(kind, digits); }

bool is_checksum(std::string_view text) {
  return text.starts_with(kind) && text.size() == kind.size() + digit_count &&
         text.find_first_not_of("0123456789abcdef", kind.size()) == std::string_view::npos;
}

// Names and texts have their quotes escaped in JSON, so that none of them is taken for it.
std::optional<std::size_t> place_of_digits(std::string_view header) {
  const std::string before = concat('"', checksum_key, "\":\"");
  const std::size_t at = header.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view text = header.substr(at + before.size());
  if (!is_checksum(text.substr(0, text.find('"')))) return std::nullopt;
  return at + before.size() + kind.size();
}

}  // namespace peal
