// SPDX-License-Identifier: Apache-2.0
// libFuzzer on files of tokens. Whatever the bytes: tokens below the vocabulary's size, as many as
// the file has bytes for, or a peal::Error. The input is a file in memory.
#include <peal/autograd/core/error.h>
#include <peal/data/text/token_file.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void read(const std::string& path, std::size_t bytes) {
  try {
    const auto file = std::make_shared<peal::data::TokenFile>(path);
    require(file->size() >= 0 && 24 + 2 * static_cast<std::size_t>(file->size()) <= bytes);
    peal::data::TokenIds tokens(static_cast<std::size_t>(file->size()));
    file->read(0, tokens);
    for (const std::int64_t token : tokens) require(token >= 0 && token < file->vocabulary());
    const peal::data::TokenWindows windows(file, 3, 2);
    const std::int64_t last[] = {windows.size() - 1};
    require(windows.get(last).y.numel() == 3);
  } catch (const peal::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = ::memfd_create("tokens", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  require(file >= 0 && ::ftruncate(file, 0) == 0 &&
          ::pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  read(path, size);
  return 0;
}
