// SPDX-License-Identifier: Apache-2.0
// Tar shards for tests: sample i of all has a file "x" and a file "cls", of i and i mod 10.
#pragma once

#include <peal/data/shards/tar_shards.h>
#include <peal/tests/folder.h>

#include "encode.h"

#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::testing {

using TarFiles = std::vector<std::pair<std::string, std::string>>;  // name, content

inline std::vector<std::uint8_t> tar_of(const TarFiles& files) {
  std::vector<std::uint8_t> archive;
  for (const auto& [name, content] : files) {
    const auto entry = tar_entry(name, content);
    archive.insert(archive.end(), entry.begin(), entry.end());
  }
  archive.resize(archive.size() + 1024);
  return archive;
}

inline std::string put(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
  return path.string();
}

// From sample `first` on; every third has an image more, so that they differ in length.
inline TarFiles numbered(std::int64_t first, std::int64_t count) {
  TarFiles files;
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::string stem = "set/" + std::to_string(i);
    files.emplace_back(stem + ".x", std::to_string(i));
    if (i % 3 == 0) files.emplace_back(stem + ".seg.PNG", std::string(700, 'p'));
    files.emplace_back(stem + ".cls", std::to_string(i % 10) + "\n");
  }
  return files;
}

inline std::vector<std::string> write_shards(const std::filesystem::path& folder,
                                             const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> paths;
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    const auto archive = tar_of(numbered(first, size));
    const std::string name = "s" + std::to_string(paths.size()) + ".tar";
    paths.push_back(put(folder / name, text_of(archive)));
    first += size;
  }
  return paths;
}

// x: the number of the sample; y: its class.
inline data::Sample decode_number(const data::TarSample& files, data::Draw&) {
  return {Tensor::scalar(files.number("x")), Tensor::scalar(files.number("cls"))};
}

}  // namespace peal::testing
