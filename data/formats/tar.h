// SPDX-License-Identifier: Apache-2.0
// tar, read from one end to the other: the files, folders and hard links in it, in the order in
// which they lie there. Plain or gzip, told apart by content. Understood are ustar (POSIX.1-1988,
// names with a prefix), the long names of GNU and of pax (POSIX.1-2001), and pax's sizes; symbolic
// links and devices are passed over.
//
// Invariant: memory grows only by what the archive really holds and the caller asks for, so a
// hostile header costs no more; what is not asked for is passed over unread where the archive is a
// plain file. Thread safety: none; one reader, one thread. REQUIRES: content in memory outlives the
// reader.
#pragma once

#include <peal/data/formats/gzip.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace peal::data {

struct TarEntry {
  enum Kind : std::uint8_t { file, folder, link } kind = file;
  std::string name;
  std::string target;      // of a link: the name of an entry before it
  std::uint64_t size = 0;  // in bytes, of a file, as its header says
};

class TarReader {
 public:
  // `name` is what errors call the archive.
  TarReader(std::span<const std::uint8_t> content, std::string name);
  TarReader(std::unique_ptr<ByteSource> source, std::string name);

  // The next entry, behind what is left of the one before; nothing at the end of the archive. An
  // archive that stops without the zeros that end one is named in the log: it may be cut short.
  // At the end the source is read to its own: to gzip's checksum and a program's status.
  // Errors: no tar, a damaged header, a file or archive that ends early, a file that is packed with
  // its holes (GNU's sparse ones), damaged gzip, a program that failed.
  std::optional<TarEntry> next();
  // Appends the content of the entry that next() gave, once. Errors: as above.
  void read(std::vector<std::uint8_t>& to);
  // Fills `to` with what comes next of that content and returns how many bytes it got: fewer only
  // at its end. Errors: as above.
  std::size_t read_some(std::span<std::uint8_t> to);
  // Where the content of that entry begins, in bytes of the archive, unpacked.
  std::uint64_t content_at() const { return content_at_; }
  // Whether the archive is gzip.
  bool packed() const { return reader_.packed(); }
  // Names in the log how many symbolic links were passed over so far, if any.
  void warn_of_links() const;

 private:
  void check_got(std::uint64_t got, std::uint64_t wanted) const;
  void append(std::vector<std::uint8_t>& to, std::uint64_t count);
  void skip(std::uint64_t count);
  std::string short_text(std::uint64_t size);
  bool zeros_follow();
  void read_to_end();
  void check_not_cut() const;

  GzipReader reader_;
  std::string name_;
  std::uint64_t headers_ = 0, at_ = 0, content_at_ = 0, symbolic_links_ = 0;
  std::uint64_t left_ = 0, padding_ = 0;  // of the last entry
  std::string what_;                      // and what errors call it
};

}  // namespace peal::data
