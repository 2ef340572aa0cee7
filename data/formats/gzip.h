// SPDX-License-Identifier: Apache-2.0
// The bytes of a file, in order, packed or not: content that starts with gzip's magic number is
// unpacked (all its members), anything else passes through. The name of the file does not matter.
//
// Invariant: no byte is handed out that zlib has not unpacked without error, and memory grows only
// by what the caller asks for, so a hostile file costs no more than its reader is ready to take.
// Thread safety: none; one reader, one thread. REQUIRES: content in memory outlives the reader.
#pragma once

#include <peal/data/formats/byte_source.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace peal::data {

// The whole file as it lies on disk; a pipe to its end. Error: not there, not a file, or not
// readable (with the system's reason).
std::vector<std::uint8_t> read_file(const std::filesystem::path& path);

class GzipReader {
 public:
  // `name` is what errors call the content.
  GzipReader(std::span<const std::uint8_t> content, std::string_view name);
  GzipReader(std::unique_ptr<ByteSource> source, std::string_view name);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Fills `out` from the front and returns how many bytes it got: fewer than asked for only at the
  // end. Error: a damaged gzip stream (bad code, bad checksum), or bytes after it that are neither
  // gzip nor zeros, which fill up a block.
  std::size_t read(std::span<std::uint8_t> out);
  // Leaves out as many bytes, of plain content without reading them; returns how many there were.
  std::uint64_t skip(std::uint64_t count);
  bool packed() const { return stream_ != nullptr; }

  // About the most that read() can still give, of content in memory; deflate's best ratio is 1032
  // to 1.
  std::size_t at_most() const { return stream_ ? rest_.size() * 1032 : rest_.size(); }

  // True once read() came to the end of a gzip stream that lacks its own end.
  bool cut_short() const;

 private:
  struct Stream;
  void begin();
  void refill();
  std::size_t inflate_into(std::span<std::uint8_t> out);

  std::unique_ptr<ByteSource> source_;  // null: all is in rest_
  std::vector<std::uint8_t> buffer_;    // of the source
  bool source_ended_ = true;
  std::span<const std::uint8_t> rest_;
  std::string name_;
  std::unique_ptr<Stream> stream_;  // null: plain content
  bool cut_short_ = false;
};

}  // namespace peal::data
