// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4): whether a file is the one that was meant, and proofs of a secret
// (comm/store/hmac.h). Thread safety: a value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace peal {

class Sha256 {
 public:
  void add(std::span<const std::uint8_t> bytes);
  // Of all that was added. REQUIRES: one of them is called, once, last.
  std::array<std::uint8_t, 32> bytes();
  std::string digest();  // 64 hexadecimal digits

 private:
  void mix(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> block_{};  // that is not full
  std::uint64_t bytes_ = 0;
};

// Two digits a byte, of 0 to 9 and a to f.
std::string hexadecimal(std::span<const std::uint8_t> bytes);

}  // namespace peal
