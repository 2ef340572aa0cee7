// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/sha256.h>
#include <peal/comm/store/hmac.h>

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace peal::comm {
namespace {

std::span<const std::uint8_t> in_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// With the secret's block before the rest of what it is of.
Sha256 begun_with(std::span<const std::uint8_t, 64> block, std::uint8_t pad) {
  std::array<std::uint8_t, 64> padded{};
  for (std::size_t i = 0; i < padded.size(); ++i)
    padded[i] = static_cast<std::uint8_t>(block[i] ^ pad);
  Sha256 sum;
  sum.add(padded);
  return sum;
}

}  // namespace

std::string hmac_sha256(std::string_view secret, std::string_view text) {
  std::array<std::uint8_t, 64> key{};
  if (secret.size() <= key.size()) {
    std::ranges::copy(in_bytes(secret), key.begin());
  } else {
    Sha256 shorter;
    shorter.add(in_bytes(secret));
    std::ranges::copy(shorter.bytes(), key.begin());
  }
  Sha256 inner = begun_with(key, 0x36), outer = begun_with(key, 0x5c);
  inner.add(in_bytes(text));
  outer.add(inner.bytes());
  return outer.digest();
}

bool equal_proofs(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  int differences = 0;
  for (std::size_t i = 0; i < one.size(); ++i) differences |= one[i] ^ other[i];
  return differences == 0;
}

std::string nonce() {
  std::array<std::uint8_t, 16> bytes{};
  PEAL_CHECK(getentropy(bytes.data(), bytes.size()) == 0,
             "[store] the system gives no random bytes (getentropy)");
  return hexadecimal(bytes);
}

}  // namespace peal::comm
