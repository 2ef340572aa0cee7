// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA256 (RFC 2104 over autograd/core/sha256.h): proves that one knows a secret, without
// telling it. It is here, and not from a library, for two processes that shake hands once: a
// dependency of every program would be dearer. Not for more than that: it is neither fast nor free
// of side channels.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace peal::comm {

// 64 hexadecimal digits.
std::string hmac_sha256(std::string_view secret, std::string_view text);
// Whether they are equal, in a time that does not say where they differ.
bool equal_proofs(std::string_view one, std::string_view other);
// 32 hexadecimal digits that nobody can foresee. Error where the system has none.
std::string nonce();

}  // namespace peal::comm
