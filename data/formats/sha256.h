// SPDX-License-Identifier: Apache-2.0
// The SHA-256 of a file (autograd/core/sha256.h). Thread safety: a free function.
#pragma once

#include <filesystem>
#include <string>

namespace peal::data {

// Of its content, as 64 hexadecimal digits. Errors: as of OpenFile.
std::string sha256_of(const std::filesystem::path& file);

}  // namespace peal::data
