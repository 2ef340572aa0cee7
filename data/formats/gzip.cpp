// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/gzip.h>

#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

namespace peal::data {

std::vector<std::uint8_t> read_file(const std::filesystem::path& path) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  PEAL_CHECK(std::filesystem::exists(status), "[data] ", path.string(), ": no such file");
  PEAL_CHECK(!std::filesystem::is_directory(status), "[data] ", path.string(),
             ": expected a file, got a folder");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  PEAL_CHECK(file, "[data] ", path.string(), ": cannot open: ", std::strerror(errno));
  // A pipe has no size, and one of a file in /proc is 0. One byte more finds the end.
  const auto size = std::filesystem::file_size(path, code);
  constexpr std::size_t step = std::size_t{1} << 16;
  std::vector<std::uint8_t> content(code || size == 0 ? step : static_cast<std::size_t>(size) + 1);
  std::size_t got = 0;
  while (true) {
    got += std::fread(content.data() + got, 1, content.size() - got, file.get());
    PEAL_CHECK(!std::ferror(file.get()), "[data] ", path.string(),
               ": cannot read: ", std::strerror(errno));
    if (got < content.size()) break;
    content.resize(2 * got);
  }
  content.resize(got);
  return content;
}

struct GzipReader::Stream {
  z_stream z{};
  bool member_done = false;
  ~Stream() { inflateEnd(&z); }
};

namespace {

constexpr int gzip_only =
    15 + 16;  // zlib's window bits: the largest window, a gzip header expected

bool starts_as_gzip(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

}  // namespace

GzipReader::GzipReader(std::span<const std::uint8_t> content, std::string_view name)
    : rest_(content), name_(name) {
  begin();
}

GzipReader::GzipReader(std::unique_ptr<ByteSource> source, std::string_view name)
    : source_(std::move(source)), buffer_(512), source_ended_(false), name_(name) {
  refill();
  begin();
}

void GzipReader::begin() {
  if (!starts_as_gzip(rest_)) return;
  stream_ = std::make_unique<Stream>();
  PEAL_CHECK(inflateInit2(&stream_->z, gzip_only) == Z_OK, "[data] ", name_,
             ": zlib does not start: ", stream_->z.msg ? stream_->z.msg : "out of memory");
}

GzipReader::~GzipReader() = default;

// So that there are two bytes at least, but at the end.
void GzipReader::refill() {
  if (rest_.size() >= 2 || source_ended_) return;
  std::copy(rest_.begin(), rest_.end(), buffer_.begin());
  const std::size_t kept = rest_.size();
  constexpr std::size_t step = std::size_t{1} << 16;
  if (stream_) buffer_.resize(step);
  const std::size_t got = source_->read(std::span(buffer_).subspan(kept));
  source_ended_ = kept + got < buffer_.size();
  rest_ = std::span(buffer_).first(kept + got);
}

std::uint64_t GzipReader::skip(std::uint64_t count) {
  std::uint64_t skipped = 0;
  if (!stream_) {
    skipped = std::min<std::uint64_t>(count, rest_.size());
    rest_ = rest_.subspan(static_cast<std::size_t>(skipped));
    return source_ ? skipped + source_->skip(count - skipped) : skipped;
  }
  std::vector<std::uint8_t> aside(
      static_cast<std::size_t>(std::min<std::uint64_t>(count, std::uint64_t{1} << 16)));
  while (skipped < count) {
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(count - skipped, aside.size()));
    const std::size_t got = read(std::span(aside).first(wanted));
    skipped += got;
    if (got < wanted) break;
  }
  return skipped;
}

bool GzipReader::cut_short() const { return cut_short_; }

std::size_t GzipReader::read(std::span<std::uint8_t> out) {
  std::size_t got = 0;
  while (got < out.size()) {
    const auto room = out.subspan(got);
    if (stream_) {
      refill();
      if (stream_->member_done) {
        for (; !rest_.empty() && rest_[0] == 0; refill()) rest_ = rest_.subspan(1);  // padding
        if (rest_.empty()) break;
        PEAL_CHECK(starts_as_gzip(rest_), "[data] ", name_, ": ", rest_.size(),
                   " bytes after the end of the gzip stream are not gzip");
        inflateReset(&stream_->z);
        stream_->member_done = false;
      }
      got += inflate_into(room);
      if (cut_short_) break;
    } else {
      const std::size_t taken = std::min(room.size(), rest_.size());
      std::copy_n(rest_.begin(), taken, room.begin());
      rest_ = rest_.subspan(taken);
      return source_ ? taken + source_->read(room.subspan(taken)) : taken;
    }
  }
  return got;
}

// One call of zlib: takes from rest_, fills the front of `out`, and notes a member's end or the
// lack of it.
std::size_t GzipReader::inflate_into(std::span<std::uint8_t> out) {
  constexpr std::size_t most = std::numeric_limits<uInt>::max();
  z_stream& z = stream_->z;
  z.next_in = rest_.data();
  z.avail_in = static_cast<uInt>(std::min(rest_.size(), most));
  z.next_out = out.data();
  z.avail_out = static_cast<uInt>(std::min(out.size(), most));
  const int result = inflate(&z, Z_NO_FLUSH);
  const std::size_t got = static_cast<std::size_t>(z.next_out - out.data());
  rest_ = rest_.subspan(static_cast<std::size_t>(z.next_in - rest_.data()));
  PEAL_CHECK(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR, "[data] ", name_,
             ": damaged gzip stream: ", z.msg ? z.msg : zError(result),
             "; copy or download the file again");
  stream_->member_done = result == Z_STREAM_END;
  cut_short_ = !stream_->member_done && rest_.empty() && source_ended_ && z.avail_out > 0;
  return got;
}

}  // namespace peal::data
