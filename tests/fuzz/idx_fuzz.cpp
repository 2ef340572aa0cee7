// SPDX-License-Identifier: Apache-2.0
// libFuzzer on the IDX reader. Whatever the bytes: an array whose size its header says, or a
// peal::Error. And packed by zlib, in two gzip members, the same bytes must give the same answer.
#include <peal/autograd/core/error.h>
#include <peal/data/formats/idx.h>
#include <zlib.h>

#include <cstdlib>
#include <optional>
#include <vector>

namespace {

using Bytes = std::vector<std::uint8_t>;
using peal::data::Idx;

void require(bool condition) {
  if (!condition) std::abort();
}

std::optional<Idx> read(std::span<const std::uint8_t> content, int rank) {
  try {
    Idx idx = peal::data::parse_idx(content, "F", rank);
    std::size_t count = 1;
    for (const std::int64_t dim : idx.dims) count *= static_cast<std::size_t>(dim);
    require(idx.dims.size() == static_cast<std::size_t>(rank) && idx.elements.size() == count);
    return idx;
  } catch (const peal::Error&) {
    return std::nullopt;
  }
}

void append_gzip(Bytes& packed, std::span<const std::uint8_t> plain) {
  z_stream z{};
  require(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  const std::size_t before = packed.size();
  packed.resize(before + deflateBound(&z, plain.size()) + 64);
  z.next_in = const_cast<Bytef*>(plain.data());
  z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = packed.data() + before;
  z.avail_out = static_cast<uInt>(packed.size() - before);
  require(deflate(&z, Z_FINISH) == Z_STREAM_END);
  packed.resize(before + z.total_out);
  deflateEnd(&z);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> content(data, size);
  for (const int rank : {1, 3}) {
    const auto plain = read(content, rank);
    if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b) continue;  // packed once already
    Bytes packed;
    append_gzip(packed, content.first(size / 3));
    append_gzip(packed, content.subspan(size / 3));
    const auto unpacked = read(packed, rank);
    require(plain.has_value() == unpacked.has_value());
    if (plain) require(plain->dims == unpacked->dims && plain->elements == unpacked->elements);
  }
  return 0;
}
