// SPDX-License-Identifier: Apache-2.0
// tar, read from one end to the other: the files in it with their names, in the order in which they
// lie there. Plain or gzip, told apart by content. Understood are ustar (POSIX.1-1988, names with a
// prefix), the long names of GNU and of pax (POSIX.1-2001); links, folders and devices are passed
// over.
//
// Invariant: memory grows only by what the archive really holds, so a hostile header costs no more.
// Thread safety: none; one reader, one thread. REQUIRES: the content outlives the reader.
#pragma once

#include <peal/data/formats/gzip.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace peal::data {

class TarReader {
 public:
  // `name` is what errors call the archive.
  TarReader(std::span<const std::uint8_t> content, std::string name);

  // The name of the next file, whose bytes are appended to `to`; nothing at the end of the archive.
  // Errors: no tar, a damaged header, a file or archive that ends early, damaged gzip.
  std::optional<std::string> next(std::vector<std::uint8_t>& to);

 private:
  void append(std::vector<std::uint8_t>& to, std::uint64_t count, const std::string& what);

  GzipReader reader_;
  std::string name_;
  std::uint64_t headers_ = 0;
};

}  // namespace peal::data
