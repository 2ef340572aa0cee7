// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte pairs (byte_pairs.h): how files write bytes, as characters that are none of
// blanks and controls, and in which order bytes are the first tokens; GPT-2's (Radford et al.,
// "Language models are unsupervised multitask learners", 2019). Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace peal::data {

// Printable bytes of Latin-1 are written as themselves, the others, in order, as the characters
// from 256 on. Numbers of bytes are their places in that order.
struct ByteAlphabet {
  std::array<char32_t, 256> character{};
  std::array<std::uint8_t, 256> byte_of_number{}, number_of_byte{};

  ByteAlphabet();
  std::int64_t number(char byte) const { return number_of_byte[static_cast<unsigned char>(byte)]; }
};
const ByteAlphabet& byte_alphabet();

// Bytes as files write them, in UTF-8; and back. Error that begins with `where` for a character
// that stands for no byte.
std::string written_bytes(std::string_view bytes);
std::string read_bytes(std::string_view word, std::string_view where);

}  // namespace peal::data
