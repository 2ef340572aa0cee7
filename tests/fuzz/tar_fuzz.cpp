// SPDX-License-Identifier: Apache-2.0
// libFuzzer on the reader of tar archives. Whatever the bytes: files that are together no longer
// than the archive, unpacked, can be; or a peal::Error.
#include <peal/autograd/core/error.h>
#include <peal/data/formats/tar.h>

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    peal::data::TarReader reader({data, size}, "F");
    std::vector<std::uint8_t> content;
    std::size_t files = 0;
    while (const auto entry = reader.next()) {
      ++files;
      if (entry->name.size() % 2 == 0) reader.read(content);  // the others are passed over
    }
    const std::size_t most = size * 1040 + 512;
    if (content.size() > most || files > most / 512) std::abort();
  } catch (const peal::Error&) {
  }
  return 0;
}
