// SPDX-License-Identifier: Apache-2.0
// Checksums of safetensors files: the metadata "peal.checksum" is "crc32:" and 8 digits, the CRC-32
// (ISO 3309, as zlib's and gzip's) of all bytes of the file, in which those digits count as zeros.
// A file has one where its metadata ask for one, as those of checkpoints and models do
// (nn/checkpoint.h); other readers of the format pass over it. The reader looks at it where it is
// there, and takes it out of the metadata:
//
//   save_safetensors(path, tensors, {{std::string(checksum_key), ""}});
//   load_safetensors(path);  // Error where a bit of it is another one
//
// Thread safety: free functions without state; a RunningChecksum belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace peal {

inline constexpr std::string_view checksum_key = "peal.checksum";

// Of bytes as they come.
class RunningChecksum {
 public:
  void add(const void* data, std::size_t bytes);
  // 8 hexadecimal digits.
  std::string digits() const;

 private:
  std::uint32_t crc_ = 0;
};

// The metadata's text for these digits.
std::string checksum_text(std::string_view digits);

// Whether a text is checksum_text() of 8 digits.
bool is_checksum(std::string_view text);

// Where the 8 digits stand in the text of a header; nothing where it has no checksum.
std::optional<std::size_t> place_of_digits(std::string_view header);

}  // namespace peal
