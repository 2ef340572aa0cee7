// SPDX-License-Identifier: Apache-2.0
// Where the samples of a tar shard lie. The layout is WebDataset's: files that follow one another
// and have one stem are a sample ("dogs/1.jpg", "dogs/1.cls"). The stem is the name up to the first
// dot behind its last slash; the suffix is what comes after that dot, in lower case. Files without
// a stem or a suffix, names of "__meta__", folders and symbolic links are passed over, the last
// with a warning; a hard link in a sample is an error.
//
// The headers alone are read, once: the index is kept beside the shard (kept_index.h). Thread
// safety: a value; pure functions but for the file that is kept.
#pragma once

#include <peal/data/formats/byte_source.h>
#include <peal/data/formats/open_file.h>
#include <peal/data/formats/tar.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::data {

struct StemAndSuffix {
  std::string stem, suffix;
};
// Nothing of a name that belongs to no sample.
std::optional<StemAndSuffix> stem_and_suffix(const std::string& name);

// Error for a link in a sample: its content lies elsewhere.
void check_no_link(const TarEntry& entry, const std::string& archive);

struct TarIndex {
  // All little-endian words where it is kept.
  std::vector<std::uint64_t> first;      // by sample, the number of its first file; and their count
  std::vector<std::uint64_t> at, size;   // by file, in bytes
  std::vector<std::uint64_t> suffix;     // by file, a number of `suffixes`
  std::vector<std::uint64_t> stem_ends;  // by sample, in `stems`
  std::string stems;
  std::vector<std::string> suffixes;

  std::int64_t samples() const { return static_cast<std::int64_t>(stem_ends.size()); }
  // REQUIRES: 0 <= sample < samples().
  std::string_view stem(std::int64_t sample) const;

  std::string to_bytes() const;
  // Nothing where these are no index of a file of `file_size` bytes: then none of its samples would
  // lie outside.
  static std::optional<TarIndex> from_bytes(std::string_view bytes, std::uint64_t file_size);
};

// Reads the headers. Errors: those of TarReader, an archive that is packed, one with two files of a
// suffix in one sample, or a link.
TarIndex index_tar(std::unique_ptr<ByteSource> archive, const std::string& name);

// The index of a shard that is a plain file, kept beside it where `keep` is true.
TarIndex tar_index(const OpenFile& shard, bool keep);

}  // namespace peal::data
