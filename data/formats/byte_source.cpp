// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/byte_source.h>
#include <peal/data/formats/open_file.h>

#include <algorithm>
#include <string_view>

namespace peal::data {
namespace {

class FileBytes : public ByteSource {
 public:
  explicit FileBytes(const std::filesystem::path& path) : file_(path) {}

  std::size_t read(std::span<std::uint8_t> to) override {
    const std::size_t got = file_.read(at_, to);
    at_ += got;
    return got;
  }
  // By its size of now: a file may still be growing.
  std::uint64_t skip(std::uint64_t count) override {
    const std::uint64_t size = file_.stamp().size;
    const std::uint64_t there = std::min(count, size > at_ ? size - at_ : 0);
    at_ += there;
    return there;
  }

 private:
  OpenFile file_;
  std::uint64_t at_ = 0;
};

}  // namespace

std::uint64_t ByteSource::skip(std::uint64_t count) {
  std::vector<std::uint8_t> aside(
      static_cast<std::size_t>(std::min<std::uint64_t>(count, std::uint64_t{1} << 16)));
  std::uint64_t skipped = 0;
  while (skipped < count) {
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(count - skipped, aside.size()));
    const std::size_t got = read(std::span(aside).first(wanted));
    skipped += got;
    if (got < wanted) break;
  }
  return skipped;
}

std::unique_ptr<ByteSource> file_bytes(const std::filesystem::path& path) {
  return std::make_unique<FileBytes>(path);
}

std::filesystem::path path_of(const std::string& name) {
  if (name.starts_with("pipe:")) return {};
  if (name.starts_with("file://")) return name.substr(7);
  if (name.starts_with("file:")) return name.substr(5);
  return name.find("://") == std::string::npos ? std::filesystem::path(name)
                                               : std::filesystem::path();
}

std::unique_ptr<ByteSource> open_bytes(const std::string& name) {
  if (const auto path = path_of(name); !path.empty()) return file_bytes(path);
  if (name.starts_with("pipe:")) return program_bytes({"/bin/sh", "-c", name.substr(5)}, name);
  const bool curl = name.starts_with("http://") || name.starts_with("https://");
  PEAL_CHECK(curl, "[data] '", name,
             "': expected a path, file:PATH, http://.., https://.. or pipe:COMMAND; what else "
             "there is a program reads (pipe:aws s3 cp s3://.. -)");
  return program_bytes({"curl", "--fail", "--silent", "--show-error", "--location", "--retry", "3",
                        "--connect-timeout", "30", "--", name},
                       name);
}

}  // namespace peal::data
