// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/store/connection.h>
#include <peal/comm/store/hmac.h>
#include <peal/comm/transport/tcp/hello.h>

#include <string_view>

namespace peal::comm {
namespace {

constexpr std::string_view greeting = "PEALtcp2";  // the last byte is the version
constexpr std::size_t nonce_bytes = 32, proof_bytes = 64;
static_assert(TcpHello::size == 8 + 3 * 4 + nonce_bytes + proof_bytes);
static_assert(TcpHello::welcome_size == 8 + proof_bytes);

std::string proof(const char* of, const TcpHello& hello, const std::string& key) {
  return hmac_sha256(
      key, join({of, concat(hello.from), concat(hello.to), concat(hello.world), hello.nonce}));
}

std::string word(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

}  // namespace

std::string key_of_job(const std::string& secret, const std::vector<std::string>& nonces) {
  return hmac_sha256(secret, join(nonces));
}

std::string encode(const TcpHello& hello, const std::string& key) {
  return concat(greeting, word(hello.from), word(hello.to), word(hello.world), hello.nonce,
                proof("caller", hello, key));
}

std::string welcome_to(const TcpHello& hello, const std::string& key) {
  return concat(greeting, proof("called", hello, key));
}

TcpHello hello_in(const std::string& bytes, const std::string& key) {
  PEAL_CHECK(bytes.size() == TcpHello::size && bytes.starts_with(greeting),
             "it does not speak as a rank of this version of peal does");
  const TcpHello hello{.from = word_at(bytes, 8),
                       .to = word_at(bytes, 12),
                       .world = word_at(bytes, 16),
                       .nonce = bytes.substr(20, nonce_bytes)};
  PEAL_CHECK(equal_proofs(bytes.substr(20 + nonce_bytes), proof("caller", hello, key)),
             "it came as rank ", hello.from, " of ", hello.world,
             ", and does not know what those of this job know");
  return hello;
}

}  // namespace peal::comm
