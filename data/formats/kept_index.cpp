// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/formats/kept_index.h>

#include <zlib.h>

#include <array>
#include <bit>
#include <cstring>

namespace peal::data {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::string_view magic_of_index = "PEALIDX1";

// Of the file that the index is of, and of what follows.
struct IndexHeader {
  std::array<char, 8> magic, kind;
  std::uint64_t size;
  std::int64_t written;
  std::uint64_t bytes, checksum;
};

std::uint64_t checksum_of(std::string_view bytes) {
  return ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

void keep(const std::filesystem::path& path, std::string_view kind, const OpenFile::Stamp& stamp,
          const std::string& found) {
  IndexHeader header{{}, {}, stamp.size, stamp.written, found.size(), checksum_of(found)};
  magic_of_index.copy(header.magic.data(), 8);
  kind.copy(header.kind.data(), 8);
  try {
    AtomicFile file(path);
    file.write(&header, sizeof header);
    file.write(found.data(), found.size());
    file.commit();
  } catch (const Error& why) {
    log_info("[data] ", path.string(), " is not kept, and will be made again: ", why.what());
  }
}

}  // namespace

std::filesystem::path index_beside(const std::filesystem::path& file) {
  return file.string() + ".idx";
}

std::optional<std::string> read_index(std::string_view content, std::string_view kind,
                                      const OpenFile::Stamp& stamp) {
  IndexHeader header{};
  if (content.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, content.data(), sizeof header);
  const std::string_view found = content.substr(sizeof header);
  const bool good = std::string_view(header.magic.data(), 8) == magic_of_index &&
                    std::string_view(header.kind.data(), 8) == kind && header.size == stamp.size &&
                    header.written == stamp.written && header.bytes == found.size() &&
                    header.checksum == checksum_of(found);
  return good ? std::optional(std::string(found)) : std::nullopt;
}

std::string kept_index(const OpenFile& file, std::string_view kind,
                       const std::function<std::string()>& find_out,
                       const std::function<bool(std::string_view)>& fits) {
  const std::filesystem::path path = index_beside(file.name());
  const OpenFile::Stamp stamp = file.stamp();
  bool ours = true;
  std::error_code none;
  if (std::filesystem::exists(path, none)) {
    try {
      const std::vector<std::uint8_t> bytes = read_file(path);
      const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      auto kept = read_index(content, kind, stamp);
      if (kept && fits(*kept)) return std::move(*kept);
      ours = content.starts_with(magic_of_index);
    } catch (const Error&) {  // not readable: it is somebody else's
      ours = false;
    }
  }
  std::string found = find_out();
  if (ours && file.stamp() == stamp) keep(path, kind, stamp, found);
  return found;
}

}  // namespace peal::data
