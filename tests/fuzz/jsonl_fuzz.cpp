// SPDX-License-Identifier: Apache-2.0
// libFuzzer on files of JSON lines. Whatever the bytes: lines that are found by their places are
// those of a stream, with the same numbers; each is a record whose fields are what they say, or a
// peal::Error that names it. Bytes are also read as an index. The input is a file in memory.
#include <peal/autograd/core/error.h>
#include <peal/data/shards/json_lines.h>
#include <peal/data/shards/json_stream.h>
#include <peal/data/shards/line_index.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace {

using peal::DType;
using peal::Tensor;
using peal::data::Draw;
using peal::data::JsonRecord;
using peal::data::LineIndex;
using peal::data::Sample;

void require(bool condition) {
  if (!condition) std::abort();
}

void read_fields(const JsonRecord& line) {
  for (const std::string& name : line.names()) {
    line.has(name);
    for (const DType dtype : {DType::f32, DType::i64, DType::u8, DType::boolean}) {
      try {
        require(line.tensor(name, dtype).numel() >= 0);
      } catch (const peal::Error&) {
      }
    }
    try {
      line.texts(name);
    } catch (const peal::Error&) {
    }
    try {
      const std::int64_t number = line.integer(name);
      require(line.tensor(name, DType::i64).item<std::int64_t>() == number);
    } catch (const peal::Error&) {
    }
  }
}

// Where a line stands, or its error.
Sample place_of(const JsonRecord& line, Draw&) {
  read_fields(line);
  const std::string& where = line.where();
  return {Tensor::scalar(std::int64_t{std::stoll(where.substr(where.rfind(':') + 1))}), {}};
}

// One entry a line: its number, or what is wrong.
template <class Next>
std::vector<std::string> said_by(const Next& next) {
  std::vector<std::string> all;
  while (true) {
    try {
      const std::optional<std::int64_t> number = next();
      if (!number) return all;
      all.push_back(std::to_string(*number));
    } catch (const peal::Error& error) {
      all.emplace_back(error.what());
    }
  }
}

void read(const std::string& path) {
  std::vector<std::string> placed;
  bool packed = false;
  try {
    const peal::data::JsonLines lines({path}, place_of);
    std::int64_t at = 0;
    placed = said_by([&]() -> std::optional<std::int64_t> {
      if (at == lines.size()) return std::nullopt;
      const std::int64_t one[] = {at++};
      return lines.get(one).x.item<std::int64_t>();
    });
  } catch (const peal::Error& error) {
    packed = std::string(error.what()).find("gzip") != std::string::npos;
  }
  const peal::data::JsonStream stream({path}, place_of);
  const auto reader = stream.read(0, 0, {});
  std::vector<std::string> streamed;
  try {
    streamed = said_by([&]() -> std::optional<std::int64_t> {
      try {
        const auto batch = reader();
        return batch ? std::optional(batch->x.item<std::int64_t>()) : std::nullopt;
      } catch (const peal::data::BadStreamSample&) {
        throw;
      } catch (const peal::Error&) {
        return std::nullopt;  // of the file: it ends here
      }
    });
  } catch (const peal::Error&) {
  }
  require(packed || placed == streamed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = ::memfd_create("lines", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  require(file >= 0 && ::ftruncate(file, 0) == 0 &&
          ::pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  read(path);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto index = LineIndex::from_bytes(text, size)) {
    for (std::size_t i = 0; i < index->begins.size(); ++i) {
      require(index->begins[i] < index->end(i) && index->end(i) <= size && index->number(i) >= 0);
    }
  }
  return 0;
}
