// SPDX-License-Identifier: Apache-2.0
// Bytes that come one after the other: of a file, or of what a program writes. open_bytes() knows
// what is meant by a name, as WebDataset does:
//   path, file:path         a file
//   pipe:COMMAND            what the shell's command writes: "pipe:zstd -dc train-000.tar.zst"
//   http://.. https://..    what the program curl downloads
// Thread safety: none; one source, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace peal::data {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `to` from the front and returns how many bytes it got: fewer than asked for only at the
  // end.
  virtual std::size_t read(std::span<std::uint8_t> to) = 0;
  // Leaves out as many bytes; returns how many there were.
  virtual std::uint64_t skip(std::uint64_t count);
};

// Errors: not there, not a file, not readable.
std::unique_ptr<ByteSource> file_bytes(const std::filesystem::path& path);

// What a program writes to its standard output; `words` are its name, looked for in PATH, and its
// arguments, and `name` is what errors call it. At the end read() is an error where the program
// failed, with what it wrote to its standard error. A source that goes ends its program, by force
// after some seconds. Errors: no such program.
std::unique_ptr<ByteSource> program_bytes(const std::vector<std::string>& words,
                                          const std::string& name);

// Errors: as above, and a name that begins otherwise (s3://...).
std::unique_ptr<ByteSource> open_bytes(const std::string& name);

// The path that such a name means; empty where it is none of a file.
std::filesystem::path path_of(const std::string& name);

}  // namespace peal::data
