// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/safetensors.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <functional>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace peal {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using Json = nlohmann::ordered_json;

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t largest_header = 100'000'000;  // the limit that other readers have

struct TypeName {
  DType dtype;
  const char* name;
};
constexpr std::array type_names{
    TypeName{DType::f32, "F32"},   TypeName{DType::f64, "F64"}, TypeName{DType::f16, "F16"},
    TypeName{DType::bf16, "BF16"}, TypeName{DType::i32, "I32"}, TypeName{DType::i64, "I64"},
    TypeName{DType::u8, "U8"},     TypeName{DType::i8, "I8"},   TypeName{DType::boolean, "BOOL"}};

std::uint64_t bytes_of(const Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel()) * size_of(tensor.dtype());
}

// One tensor of the header, checked as far as it can be alone.
struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin, end;
};

// Reads `bytes` bytes from `at` of the file on.
using Source = std::function<void(std::uint64_t at, void* to, std::uint64_t bytes)>;

class Reader {
 public:
  Reader(std::string_view file, std::uint64_t size, Source source)
      : file_(file), size_(size), source_(std::move(source)) {}

  Safetensors read() {
    const Json header = read_header();
    Safetensors result;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        result.metadata = metadata(value);
      } else {
        entries.push_back(entry(name, value));
      }
    }
    check_layout(entries);
    for (const Entry& entry : entries) {
      Tensor tensor = Tensor::empty(entry.shape, entry.dtype, Device{});
      if (entry.end > entry.begin) {
        source_(data_ + entry.begin, tensor.raw(), entry.end - entry.begin);
      }
      if (entry.dtype == DType::boolean) check_booleans(entry, tensor);
      result.tensors.emplace_back(entry.name, std::move(tensor));
    }
    return result;
  }

 private:
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    PEAL_CHECK(condition, "safetensors ", file_, ": ", parts...);
  }
  template <class... Parts>
  void check_tensor(bool condition, const std::string& name, const Parts&... parts) const {
    PEAL_CHECK(condition, "safetensors ", file_, ": tensor '", name, "': ", parts...);
  }

  Json read_header() {
    check(size_ >= length_bytes, "expected at least 8 bytes, got ", size_);
    std::uint64_t length = 0;
    source_(0, &length, length_bytes);
    check(length <= size_ - length_bytes, "a header of ", length, " bytes in a file of ", size_,
          ": truncated, or not a safetensors file");
    check(length <= largest_header, "a header of ", length, " bytes; at most ", largest_header,
          " are allowed");
    data_ = length_bytes + length;
    std::string text(length, '\0');
    source_(length_bytes, text.data(), length);
    std::set<std::string> names;  // of the outer object: JSON itself would keep the last of two
    const auto unique = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (event == Json::parse_event_t::key && depth == 1) {
        const auto& name = parsed.get_ref<const std::string&>();
        check(names.insert(name).second, "tensor '", name, "' is there twice");
      }
      return true;
    };
    try {
      Json header = Json::parse(text, unique);
      check(header.is_object(), "the header is not a JSON object but ", header.type_name());
      return header;
    } catch (const Json::exception& error) {
      fail(concat("safetensors ", file_, ": the header is not JSON: ", error.what()));
    }
  }

  Metadata metadata(const Json& value) const {
    check(value.is_object(), "__metadata__: expected an object of texts, got ", value.type_name());
    Metadata result;
    for (const auto& [key, text] : value.items()) {
      check(text.is_string(), "__metadata__: '", key, "': expected a text, got ", text.type_name());
      result[key] = text.get<std::string>();
    }
    return result;
  }

  Entry entry(const std::string& name, const Json& value) const {
    check_tensor(value.is_object() && value.size() == 3 && value.contains("dtype") &&
                     value.contains("shape") && value.contains("data_offsets"),
                 name, "expected an object of dtype, shape and data_offsets");
    Entry entry{name, DType::f32, {}, 0, 0};

    const Json& dtype = value["dtype"];
    const auto known = std::find_if(type_names.begin(), type_names.end(),
                                    [&](const TypeName& type) { return dtype == type.name; });
    check_tensor(known != type_names.end(), name,
                 "expected a dtype of F32 F64 F16 BF16 I32 I64 U8 I8 BOOL, got ", shown(dtype));
    entry.dtype = known->dtype;

    const Json& shape = value["shape"];
    check_tensor(shape.is_array() && shape.size() <= Shape::max_dims, name,
                 "expected a shape of at most ", Shape::max_dims, " sizes, got ", shown(shape));
    std::uint64_t bytes = size_of(entry.dtype);
    for (const Json& size : shape) {
      check_tensor(size.is_number_unsigned(), name, "shape ", shown(shape),
                   ": sizes are whole numbers");
      const auto n = size.get<std::uint64_t>();
      std::uint64_t product = 0;
      check_tensor(
          n <= INT64_MAX && !__builtin_mul_overflow(bytes, n, &product) && product <= INT64_MAX,
          name, "shape ", shown(shape), " is larger than any memory");
      bytes = product;
      entry.shape.push_back(static_cast<std::int64_t>(n));
    }

    const Json& offsets = value["data_offsets"];
    check_tensor(offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
                     offsets[1].is_number_unsigned(),
                 name, "expected data_offsets [begin, end], got ", shown(offsets));
    entry.begin = offsets[0].get<std::uint64_t>();
    entry.end = offsets[1].get<std::uint64_t>();
    check_tensor(entry.begin <= entry.end && entry.end <= size_ - data_, name, "data_offsets [",
                 entry.begin, ", ", entry.end, "] are outside the file's ", size_ - data_,
                 " bytes of elements");
    check_tensor(entry.end - entry.begin == bytes, name, entry.dtype, " ", entry.shape, " takes ",
                 bytes, " bytes, its data_offsets [", entry.begin, ", ", entry.end, "] hold ",
                 entry.end - entry.begin);
    return entry;
  }

  // The tensors cover the data exactly: no overlap, no gap, nothing behind the last.
  void check_layout(const std::vector<Entry>& entries) const {
    std::vector<const Entry*> order;
    for (const Entry& entry : entries) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
      return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    std::uint64_t at = 0;
    std::string before = "the header";
    for (const Entry* entry : order) {
      check_tensor(entry->begin >= at, entry->name, "starts at ", entry->begin, ", inside ", before,
                   ", which ends at ", at, ": overlapping offsets");
      check_tensor(entry->begin == at, entry->name, "starts at ", entry->begin, ", but ", before,
                   " ends at ", at, ": ", entry->begin - at, " bytes belong to no tensor");
      at = entry->end;
      before = "tensor '" + entry->name + "'";
    }
    check(at == size_ - data_, size_ - data_ - at, " bytes after ", before, " belong to no tensor");
  }

  // Any other byte in a bool is undefined behaviour to read.
  void check_booleans(const Entry& entry, const Tensor& tensor) const {
    const auto* bytes = static_cast<const std::uint8_t*>(tensor.raw());
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      check_tensor(bytes[i] <= 1, entry.name, "element ", i, " of a BOOL: expected 0 or 1, got ",
                   static_cast<int>(bytes[i]));
    }
  }

  // JSON for a message, cut where it is long. What is nested is only named: printing it recurses.
  static std::string shown(const Json& value) {
    const bool nested = std::any_of(value.begin(), value.end(), [&](const Json& element) {
      return value.is_structured() && element.is_structured();
    });
    if (nested) return concat("a nested ", value.type_name());
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= 80 ? text : text.substr(0, 77) + "...";
  }

  std::string file_;
  std::uint64_t size_;
  Source source_;
  std::uint64_t data_ = 0;  // where elements start
};

}  // namespace

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const Metadata& metadata) {
  const auto check = [&](bool condition, const std::string& name, std::string_view problem) {
    PEAL_CHECK(condition, "save ", path.string(), ": tensor '", name, "' ", problem);
  };
  std::vector<std::size_t> order(tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    check(tensors[i].second.defined(), tensors[i].first, "has no value");
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors[a].second.dtype()) > size_of(tensors[b].second.dtype());
  });
  std::vector<std::uint64_t> begins(tensors.size());
  std::uint64_t at = 0;
  for (const std::size_t i : order) {
    begins[i] = at;
    at += bytes_of(tensors[i].second);
  }

  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string_view> names{"__metadata__"};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    check(names.insert(name).second, name, "is there twice, or has the format's own name");
    const auto type = std::find_if(
        type_names.begin(), type_names.end(),
        [dtype = tensor.dtype()](const TypeName& known) { return known.dtype == dtype; });
    header[name] = {
        {"dtype", type->name},
        {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
        {"data_offsets", {begins[i], begins[i] + bytes_of(tensor)}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {
    fail(concat("save ", path.string(), ": a name or metadata is not UTF-8: ", error.what()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');

  AtomicFile file(path);
  const std::uint64_t length = text.size();
  file.write(&length, length_bytes);
  file.write(text.data(), text.size());
  for (const std::size_t i : order) {
    const Tensor here = tensors[i].second.detach().to(Device{});
    if (here.numel() > 0) file.write(here.raw(), bytes_of(here));
  }
  file.commit();
}

Safetensors parse_safetensors(std::span<const std::uint8_t> content, std::string_view name) {
  return Reader(name, content.size(),
                [&](std::uint64_t at, void* to, std::uint64_t bytes) {
                  if (bytes > 0) std::memcpy(to, content.data() + at, bytes);
                })
      .read();
}

Safetensors load_safetensors(const std::filesystem::path& path) {
  const std::string name = path.string();
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  PEAL_CHECK(file >= 0, "safetensors ", name,
             ": cannot open: ", std::generic_category().message(errno));
  const std::shared_ptr<void> close(nullptr, [file](void*) { ::close(file); });
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  PEAL_CHECK(!error, "safetensors ", name, ": cannot read: ", error.message());
  return Reader(name, size,
                [&](std::uint64_t at, void* to, std::uint64_t bytes) {
                  char* next = static_cast<char*>(to);
                  while (bytes > 0) {
                    const ssize_t n = ::pread(file, next, bytes, static_cast<off_t>(at));
                    if (n < 0 && errno == EINTR) continue;
                    PEAL_CHECK(n >= 0, "safetensors ", name, ": reading at byte ", at, ": ",
                               std::generic_category().message(errno));
                    PEAL_CHECK(n > 0, "safetensors ", name, ": ended at byte ", at, " of ", size,
                               ": it was cut while it was read");
                    next += n;
                    at += static_cast<std::uint64_t>(n);
                    bytes -= static_cast<std::uint64_t>(n);
                  }
                })
      .read();
}

}  // namespace peal
