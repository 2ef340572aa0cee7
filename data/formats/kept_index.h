// SPDX-License-Identifier: Apache-2.0
// What was found out about a file by reading all of it, kept beside it in FILE.idx, so that it is
// found out once. It counts for the file's size and time of writing, and its checksum is looked at:
// one that is stale or damaged is made again and replaced, whole or not at all. A file of that name
// that is not ours is left alone, and where the folder is not writable nothing is kept.
// Thread safety: pure but for the files; processes may keep the same index at once.
#pragma once

#include <peal/data/formats/open_file.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace peal::data {

// FILE.idx.
std::filesystem::path index_beside(const std::filesystem::path& file);

// What is kept, or what `find_out` gives, which is then kept. `kind` are 8 characters that say what
// it is; `fits` looks at what was kept, and refuses what it cannot read.
std::string kept_index(const OpenFile& file, std::string_view kind,
                       const std::function<std::string()>& find_out,
                       const std::function<bool(std::string_view)>& fits);

// What such a file holds, of a file with this stamp; nothing where it is stale, damaged or no such
// file.
std::optional<std::string> read_index(std::string_view content, std::string_view kind,
                                      const OpenFile::Stamp& stamp);

}  // namespace peal::data
