// SPDX-License-Identifier: Apache-2.0
// The IDX reader on good and bad bytes: every error must name the file, what was expected and what
// came.
#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/formats/idx.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

using Bytes = std::vector<std::uint8_t>;
using peal::data::parse_idx;
using peal::testing::check_has;
using peal::testing::Folder;

Bytes idx_file(Bytes magic, const std::vector<std::uint32_t>& dims, std::size_t elements) {
  Bytes file = std::move(magic);
  for (const std::uint32_t dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8)
      file.push_back(static_cast<std::uint8_t>(dim >> shift));
  }
  for (std::size_t i = 0; i < elements; ++i)
    file.push_back(static_cast<std::uint8_t>(i * 37 + i / 256));
  return file;
}

Bytes gzip(const Bytes& plain) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes packed(deflateBound(&z, plain.size()) + 64);
  z.next_in = const_cast<Bytef*>(plain.data());
  z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = packed.data();
  z.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

std::string error_of(const Bytes& file, int rank) {
  return peal::testing::error_of([&] { parse_idx(file, "F", rank); });
}

const Bytes images = idx_file({0, 0, 8, 3}, {5, 4, 3}, 60);

}  // namespace

TEST_CASE("plain and gzip content give the same array") {
  for (const Bytes& file : {images, gzip(images)}) {
    const auto idx = parse_idx(file, "F", 3);
    CHECK(idx.dims == std::vector<std::int64_t>{5, 4, 3});
    CHECK(idx.elements == Bytes(images.begin() + 16, images.end()));
  }
  const auto none = parse_idx(idx_file({0, 0, 8, 1}, {0}, 0), "F", 1);
  CHECK(none.dims == std::vector<std::int64_t>{0});
  CHECK(none.elements.empty());
}

TEST_CASE("a gzip file of several members is one stream") {
  Bytes first = gzip(Bytes(images.begin(), images.begin() + 21));
  const Bytes second = gzip(Bytes(images.begin() + 21, images.end()));
  first.insert(first.end(), second.begin(), second.end());
  CHECK(parse_idx(first, "F", 3).elements == Bytes(images.begin() + 16, images.end()));
}

TEST_CASE("every truncation is an error that names the file, plain or packed") {
  const Bytes packed = gzip(images);
  for (const Bytes& file : {images, packed}) {
    for (std::size_t size = 0; size < file.size(); ++size) {
      CAPTURE(size);
      check_has(error_of(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)), 3),
                "[data] F: ");
    }
  }
  check_has(error_of(Bytes(images.begin(), images.end() - 3), 3),
            "expected 60 elements for [5, 4, 3], got 57; the file is truncated");
  check_has(error_of(Bytes(packed.begin(), packed.begin() + 30), 3),
            "its gzip stream is cut short");
  check_has(error_of(Bytes(packed.begin(), packed.end() - 1), 3), "the gzip stream lacks its end");
}

TEST_CASE("trailing data is an error") {
  Bytes longer = images;
  longer.push_back(0);
  check_has(error_of(longer, 3), "expected 60 elements for [5, 4, 3], got more: trailing data");
  check_has(error_of(gzip(longer), 3), "got more: trailing data");
  Bytes packed = gzip(images);
  packed.push_back(7);
  check_has(error_of(packed, 3), "1 bytes after the end of the gzip stream are not gzip");
}

TEST_CASE("wrong magic numbers, types and dimensions are told apart") {
  check_has(error_of(idx_file({0x89, 'P', 'N', 'G'}, {}, 40), 3),
            "not an IDX file: expected the magic number 00 00 08 03, got 89 50 4e 47");
  check_has(error_of(idx_file({0, 0, 0x0A, 3}, {1, 1, 1}, 1), 3), "got 00 00 0a 03");
  check_has(error_of(idx_file({0, 0, 0x0D, 3}, {1, 1, 1}, 4), 3),
            "expected IDX elements of type u8 (08), got f32 (0d)");
  check_has(error_of(idx_file({0, 0, 8, 1}, {60}, 60), 3), "expected 3 IDX dimensions, got 1");
}

TEST_CASE("a header that promises too much costs an error, not the memory") {
  check_has(error_of(idx_file({0, 0, 8, 3}, {0xffffffffu, 0xffffffffu, 0xffffffffu}, 9), 3),
            "at most 2^40 elements");
  check_has(error_of(idx_file({0, 0, 8, 3}, {0xffffffffu, 16, 16}, 9), 3),
            "expected 1099511627520 elements");
}

TEST_CASE("damaged gzip content never gives other elements") {
  const Bytes packed = gzip(images);
  int errors = 0;
  for (std::size_t at = 10; at < packed.size(); ++at) {  // past the header, whose fields go unused
    CAPTURE(at);
    Bytes damaged = packed;
    damaged[at] ^= 0x10;
    const std::string error = error_of(damaged, 3);
    if (error == "nothing") {  // a padding bit
      CHECK(parse_idx(damaged, "F", 3).elements == parse_idx(images, "F", 3).elements);
    } else {
      check_has(error, "[data] F: ");
      ++errors;
    }
  }
  CHECK(errors >= static_cast<int>(packed.size()) - 12);
}

TEST_CASE("files: found by content, and errors carry the path") {
  const Folder folder;
  const auto write = [&](const char* name, const Bytes& bytes) {
    std::ofstream(folder.path / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return folder.path / name;
  };
  const auto message = [](const std::filesystem::path& path) {
    return peal::testing::error_of([&] { peal::data::read_idx(path, 3); });
  };
  CHECK(peal::data::read_idx(write("packed without a suffix", gzip(images)), 3).dims.size() == 3);
  CHECK(peal::data::read_idx(write("plain.gz", images), 3).dims.size() == 3);
  check_has(message(folder.path / "absent"), (folder.path / "absent").string() + ": no such file");
  check_has(message(folder.path), "expected a file, got a folder");
  check_has(message(write("empty", {})), "expected 4 bytes of IDX magic number, got 0");
}
