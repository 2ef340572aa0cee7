// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/sha256.h>
#include <peal/data/formats/open_file.h>
#include <peal/data/formats/sha256.h>

#include <cstdint>
#include <span>
#include <vector>

namespace peal::data {

std::string sha256_of(const std::filesystem::path& path) {
  const OpenFile file(path);
  Sha256 sum;
  std::vector<std::uint8_t> step(std::size_t{1} << 20);
  std::uint64_t at = 0;
  for (std::size_t got = 0; (got = file.read(at, step)) > 0; at += got) {
    sum.add(std::span(step).first(got));
  }
  return sum.digest();
}

}  // namespace peal::data
