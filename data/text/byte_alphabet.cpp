// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/text/byte_alphabet.h>
#include <peal/data/text/letters.h>

#include <algorithm>

namespace peal::data {

ByteAlphabet::ByteAlphabet() {
  std::size_t number = 0;
  const auto add = [&](std::size_t byte, char32_t written) {
    character[byte] = written;
    byte_of_number[number] = static_cast<std::uint8_t>(byte);
    number_of_byte[byte] = static_cast<std::uint8_t>(number++);
  };
  const auto printable = [](std::size_t byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  };
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (printable(byte)) add(byte, static_cast<char32_t>(byte));
  }
  char32_t next = 256;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (!printable(byte)) add(byte, next++);
  }
}

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet all;
  return all;
}

std::string written_bytes(std::string_view bytes) {
  Characters characters;
  for (const char byte : bytes) {
    characters += byte_alphabet().character[static_cast<unsigned char>(byte)];
  }
  return utf8_of(characters);
}

std::string read_bytes(std::string_view word, std::string_view where) {
  std::string bytes;
  for (const char32_t c : characters_of(word)) {
    const auto& all = byte_alphabet().character;
    const auto found = std::find(all.begin(), all.end(), c);
    PEAL_CHECK(found != all.end(), "[data] ", where, ": '", utf8_of({&c, 1}),
               "' is no character that stands for a byte");
    bytes.push_back(static_cast<char>(found - all.begin()));
  }
  return bytes;
}

}  // namespace peal::data
