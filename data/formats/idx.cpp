// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <peal/autograd/core/error.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/formats/idx.h>

#include <algorithm>
#include <array>

namespace peal::data {
namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 40;
// A false header costs no more memory than this, nor much more than the file could hold.
constexpr std::size_t least_growth = std::size_t{1} << 16, most_growth = std::size_t{1} << 26;

std::string_view type_name(std::uint8_t type) {
  switch (type) {
    case 0x08:
      return "u8";
    case 0x09:
      return "i8";
    case 0x0B:
      return "i16";
    case 0x0C:
      return "i32";
    case 0x0D:
      return "f32";
    case 0x0E:
      return "f64";
    default:
      return "unknown";
  }
}

std::string_view why_short(const GzipReader& reader) {
  return reader.cut_short() ? " (its gzip stream is cut short); copy or download the file again"
                            : "; the file is truncated";
}

void read_header(GzipReader& reader, std::string_view name, std::string_view what,
                 std::span<std::uint8_t> out) {
  const std::size_t got = reader.read(out);
  PEAL_CHECK(got == out.size(), "[data] ", name, ": expected ", out.size(), " bytes of IDX ", what,
             ", got ", got, why_short(reader));
}

std::vector<std::int64_t> read_dims(GzipReader& reader, std::string_view name, int rank) {
  std::array<std::uint8_t, 4> magic{};
  read_header(reader, name, "magic number", magic);
  PEAL_CHECK(magic[0] == 0 && magic[1] == 0 && type_name(magic[2]) != "unknown", "[data] ", name,
             ": not an IDX file: expected the magic number 00 00 08 ",
             fmt::format("{:02x}, got {:02x}", rank, fmt::join(magic, " ")));
  PEAL_CHECK(magic[2] == 0x08, "[data] ", name, ": expected IDX elements of type u8 (08), got ",
             type_name(magic[2]), fmt::format(" ({:02x})", magic[2]));
  PEAL_CHECK(magic[3] == rank, "[data] ", name, ": expected ", rank, " IDX dimensions, got ",
             int{magic[3]});
  std::vector<std::uint8_t> sizes(4 * static_cast<std::size_t>(rank));
  read_header(reader, name, "dimensions", sizes);
  std::vector<std::int64_t> dims;
  for (std::size_t at = 0; at < sizes.size(); at += 4) {
    dims.push_back(std::int64_t{sizes[at]} << 24 | std::int64_t{sizes[at + 1]} << 16 |
                   std::int64_t{sizes[at + 2]} << 8 | std::int64_t{sizes[at + 3]});
  }
  return dims;
}

}  // namespace

Idx parse_idx(std::span<const std::uint8_t> content, std::string_view name, int rank) {
  PEAL_CHECK(rank >= 1 && rank <= 255, "[data] ", name,
             ": an IDX file has 1 to 255 dimensions, asked for ", rank);
  GzipReader reader(content, name);
  Idx idx{read_dims(reader, name, rank), {}};
  const std::string shape = fmt::format("[{}]", fmt::join(idx.dims, ", "));
  std::int64_t count = 1;
  for (const std::int64_t dim : idx.dims) {
    PEAL_CHECK(dim == 0 || count <= most_elements / dim, "[data] ", name,
               ": expected at most 2^40 elements, the IDX header says ", shape);
    count *= dim;
  }
  const auto expected = static_cast<std::size_t>(count);
  std::size_t got = 0;
  while (got < expected) {
    const std::size_t growth = std::clamp(reader.at_most(), least_growth, most_growth);
    idx.elements.resize(std::min(expected, got + growth));
    const std::size_t more = reader.read(std::span(idx.elements).subspan(got));
    got += more;
    PEAL_CHECK(got == idx.elements.size(), "[data] ", name, ": expected ", expected,
               " elements for ", shape, ", got ", got, why_short(reader));
  }
  // One byte more than there should be: finds trailing data, and makes zlib check the stream's end.
  std::uint8_t beyond = 0;
  const std::size_t trailing = reader.read({&beyond, 1});
  PEAL_CHECK(!reader.cut_short(), "[data] ", name, ": all ", expected, " elements of ", shape,
             " are there, but the gzip stream lacks its end", why_short(reader));
  PEAL_CHECK(trailing == 0, "[data] ", name, ": expected ", expected, " elements for ", shape,
             ", got more: trailing data");
  return idx;
}

Idx read_idx(const std::filesystem::path& path, int rank) {
  return parse_idx(read_file(path), path.string(), rank);
}

}  // namespace peal::data
