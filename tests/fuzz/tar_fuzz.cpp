// SPDX-License-Identifier: Apache-2.0
// libFuzzer on tar archives. Whatever the bytes: files that are together no longer than the
// archive, unpacked, can be; the same from memory as from a source that comes in pieces; shards
// whose samples lie inside of them, by an index that is kept as it is; or a peal::Error. Bytes
// that are no archive are read as an index.
#include <peal/autograd/core/error.h>
#include <peal/data/formats/tar.h>
#include <peal/data/shards/tar_index.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace {

using peal::data::TarIndex;
using peal::data::TarReader;
using Bytes = std::span<const std::uint8_t>;

void require(bool condition) {
  if (!condition) std::abort();
}

class Source : public peal::data::ByteSource {
 public:
  explicit Source(Bytes rest) : rest_(rest) {}
  std::size_t read(std::span<std::uint8_t> to) override {
    const std::size_t count = std::min(to.size(), rest_.size());
    std::copy_n(rest_.begin(), count, to.begin());
    rest_ = rest_.subspan(count);
    return count;
  }

 private:
  Bytes rest_;
};

struct Read {
  std::vector<std::uint8_t> content;
  std::vector<std::string> names;
  std::string error;
  bool operator==(const Read&) const = default;
};

Read all_of(TarReader& reader, bool in_pieces) {
  Read all;
  try {
    while (const auto entry = reader.next()) {
      all.names.push_back(entry->name);
      if (entry->name.size() % 2 == 1) continue;  // passed over
      if (!in_pieces) {
        reader.read(all.content);
        continue;
      }
      std::vector<std::uint8_t> step(700);
      while (const std::size_t got = reader.read_some(step)) {
        all.content.insert(all.content.end(), step.begin(),
                           step.begin() + static_cast<std::ptrdiff_t>(got));
      }
    }
  } catch (const peal::Error& error) {
    all.error = error.what();
  }
  return all;
}

void check_index(const TarIndex& index, std::size_t size) {
  require(index.first.size() == index.stem_ends.size() + 1 &&
          index.first.back() == index.at.size());
  for (std::size_t i = 0; i + 1 < index.first.size(); ++i) {
    require(index.first[i] < index.first[i + 1]);
    require(index.stem(static_cast<std::int64_t>(i)).size() <= size);
  }
  for (std::size_t i = 0; i < index.at.size(); ++i) {
    require(index.at[i] <= size && index.size[i] <= size - index.at[i]);
    require(index.suffix[i] < index.suffixes.size());
  }
  const auto again = TarIndex::from_bytes(index.to_bytes(), size);
  require(again && again->to_bytes() == index.to_bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes{data, size};
  TarReader memory(bytes, "F"), source(std::make_unique<Source>(bytes), "F");
  const Read all = all_of(memory, false), pieces = all_of(source, true);
  const std::size_t most = size * 1040 + 512;
  require(all.content.size() <= most + (1 << 20) && all.names.size() <= most / 512);
  // A damaged gzip stream is noticed sooner where more of it is there.
  const bool sound = all.error.empty() && pieces.error.empty();
  if (sound) require(all == pieces);
  if (!memory.packed()) require(all.error == pieces.error && all.names == pieces.names);
  try {
    check_index(peal::data::index_tar(std::make_unique<Source>(bytes), "F"), size);
  } catch (const peal::Error&) {
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto index = TarIndex::from_bytes(text, size)) check_index(*index, size);
  return 0;
}
