// SPDX-License-Identifier: Apache-2.0
// Hello: what two ranks say to each other before frames travel between them (frame.h), of fixed
// length: who calls, whom, of how many, and that it is of this job; a welcome; and thanks, without
// which the caller may have given up before the welcome came. All ranks of the job have drawn
// a nonce, and know the others' through the store, and the job's secret where it has one
// (PEAL_STORE_SECRET); both ends prove that they know these (HMAC-SHA256), over what the caller
// has drawn anew. What follows is neither signed nor hidden, as in the store (tcp_store.h).
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

struct TcpHello {
  static constexpr std::size_t size = 116, welcome_size = 72;
  static constexpr std::string_view thanks = "T";
  std::uint32_t from = 0, to = 0, world = 0;
  std::string nonce{};  // 32 hexadecimal digits
};

// What those of a job know, and nobody else.
std::string key_of_job(const std::string& secret, const std::vector<std::string>& nonces);
// `size` bytes, and the answer, `welcome_size`.
std::string encode(const TcpHello& hello, const std::string& key);
std::string welcome_to(const TcpHello& hello, const std::string& key);
// REQUIRES: `size` bytes. Error for what is none, or of none who knows the key.
TcpHello hello_in(const std::string& bytes, const std::string& key);

}  // namespace peal::comm
