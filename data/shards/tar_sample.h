// SPDX-License-Identifier: Apache-2.0
// One sample of a tar shard, as bytes: files of one stem, by their suffixes; and what makes tensors
// of it.
//
//   const data::Decode decode = [](const data::TarSample& files, data::Draw&) -> data::Sample {
//     return {tensor_of(files["npy"]), Tensor::scalar(files.number("cls"))};
//   };
//
// Thread safety: a value.
#pragma once

#include <peal/data/collate.h>
#include <peal/data/draw.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace peal::data {

struct TarSample {
  std::string shard, stem;
  // Where a file lies in `bytes`.
  struct File {
    std::string suffix;
    std::size_t at = 0, size = 0;
  };
  std::vector<File> files = {};
  std::vector<std::uint8_t> bytes = {};

  bool has(std::string_view suffix) const { return find(suffix) != nullptr; }
  // A file's content. Error for one that the sample has not, with those that it has.
  std::span<const std::uint8_t> operator[](std::string_view suffix) const;
  std::string_view text(std::string_view suffix) const;
  // The integer that is all of its text but blanks, as of "cls". Error where it is none.
  std::int64_t number(std::string_view suffix) const;
  // What errors call it.
  std::string name() const { return shard + ": sample '" + stem + "'"; }

 private:
  const File* find(std::string_view suffix) const;
};

// Called by several threads at once; whatever chance there is comes from the Draw alone.
using Decode = std::function<Sample(const TarSample& files, Draw& draw)>;

// The same; what it throws names the sample.
Sample decoded(const Decode& decode, const TarSample& files, Draw& draw);

}  // namespace peal::data
