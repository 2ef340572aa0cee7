// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/core/safetensors_checksum.h>
#include <peal/autograd/core/safetensors_file.h>
#include <peal/autograd/core/safetensors_format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace peal {
namespace {

using namespace safetensors_format;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t largest_header = 100'000'000;  // the limit that other readers have

// One tensor of the header, checked as far as it can be alone.
struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin, end;
  Tensor elements = {};
};

// Reads `bytes` bytes from `at` of the file on.
using Source = std::function<void(std::uint64_t at, void* to, std::uint64_t bytes)>;

class Reader {
 public:
  Reader(std::string_view file, std::uint64_t size, Source source)
      : file_(file), size_(size), source_(std::move(source)) {}

  // What the header says, and the entries' numbers as they lie in the file.
  std::vector<std::size_t> open(std::vector<Entry>& entries, Metadata& metadata_of) {
    const Json header = read_header();
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        metadata_of = metadata(value);
      } else {
        entries.push_back(entry(name, value));
      }
    }
    return check_layout(entries);
  }

  Safetensors read() {
    Safetensors result;
    std::vector<Entry> entries;
    for (const std::size_t i : open(entries, result.metadata)) {
      const Entry& entry = entries[i];
      Tensor tensor = room_for(entry);
      if (entry.end > entry.begin) {
        source_(data_ + entry.begin, tensor.raw(), entry.end - entry.begin);
        sum_.add(tensor.raw(), entry.end - entry.begin);
      }
      entries[i].elements = std::move(tensor);
    }
    result.checksum = check_sum(result.metadata);
    for (Entry& entry : entries) {
      if (entry.dtype == DType::boolean) check_booleans(entry.name, entry.elements);
      result.tensors.emplace_back(std::move(entry.name), std::move(entry.elements));
    }
    return result;
  }

  // After open(), and as often as wanted: all other bytes.
  std::string check_rest(Metadata metadata_of) {
    const RunningChecksum of_header = sum_;
    std::vector<char> block(std::size_t{1} << 20);
    for (std::uint64_t at = data_; at < size_;) {
      const std::uint64_t bytes = std::min<std::uint64_t>(block.size(), size_ - at);
      source_(at, block.data(), bytes);
      sum_.add(block.data(), bytes);
      at += bytes;
    }
    std::string checksum = check_sum(metadata_of);
    sum_ = of_header;
    return checksum;
  }

  // Elements of an entry, from `begin` on, as many as there is room for.
  void read_range(const Entry& entry, std::int64_t begin, const Tensor& into) const {
    check_tensor(
        into.dtype() == entry.dtype && begin >= 0 && into.numel() <= entry.shape.numel() - begin,
        entry.name, "asked for ", into.numel(), " elements of ", into.dtype(), " from ", begin,
        " on, of ", entry.dtype, " ", entry.shape);
    if (into.numel() == 0) return;
    const auto size = static_cast<std::uint64_t>(size_of(entry.dtype));
    source_(data_ + entry.begin + static_cast<std::uint64_t>(begin) * size, into.raw(),
            static_cast<std::uint64_t>(into.numel()) * size);
    if (entry.dtype == DType::boolean) check_booleans(entry.name, into);
  }

 private:
  // Its size is the file's, so nothing but memory can be missing.
  Tensor room_for(const Entry& entry) const {
    try {
      return Tensor::empty(entry.shape, entry.dtype, Device{});
    } catch (const Error& error) {
      throw UnreadableFile(
          concat("safetensors ", file_, ": tensor '", entry.name, "': ", error.what()));
    }
  }

  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    PEAL_CHECK(condition, "safetensors ", file_, ": ", parts...);
  }
  template <class... Parts>
  void check_tensor(bool condition, const std::string& name, const Parts&... parts) const {
    PEAL_CHECK(condition, "safetensors ", file_, ": tensor '", name, "': ", parts...);
  }

  Json read_header() {
    check(size_ >= length_bytes, "expected at least 8 bytes, got ", size_,
          ": truncated, or not a safetensors file; copy it again or name another");
    std::uint64_t length = 0;
    source_(0, &length, length_bytes);
    check(length <= size_ - length_bytes, "a header of ", length, " bytes in a file of ", size_,
          ": truncated, or not a safetensors file; copy it again or name another");
    check(length <= largest_header, "a header of ", length, " bytes; at most ", largest_header,
          " are allowed");
    data_ = length_bytes + length;
    std::string text(length, '\0');
    source_(length_bytes, text.data(), length);
    sum_header(length, text);
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

  void sum_header(std::uint64_t length, std::string text) {
    sum_.add(&length, length_bytes);
    if (const auto digits = place_of_digits(text)) {
      expected_ = checksum_text(text.substr(*digits, no_digits.size()));
      text.replace(*digits, no_digits.size(), no_digits);
    }
    sum_.add(text.data(), text.size());
  }

  // After all bytes; what was looked at is no metadata of the caller's. The sum, or nothing where
  // the file has none.
  std::string check_sum(Metadata& metadata) const {
    const auto node = metadata.extract(std::string(checksum_key));
    if (node.empty()) return {};
    check(!expected_.empty() || !is_checksum(node.mapped()), "it has the checksum ", node.mapped(),
          ", and a header that peal has not written: it was changed after it was saved; name "
          "another, or leave '",
          checksum_key, "' out of its metadata");
    check(node.mapped() == expected_, "__metadata__: '", checksum_key,
          "': expected crc32: and 8 digits, got '", node.mapped(), "'");
    const std::string got = checksum_text(sum_.digits());
    check(got == expected_, "expected the checksum ", expected_, ", which it says, got ", got,
          ": it is damaged, or was changed after it was saved; copy it again or name another");
    return expected_;
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
                 " bytes of elements: truncated or damaged; copy it again or name another");
    check_tensor(entry.end - entry.begin == bytes, name, entry.dtype, " ", entry.shape, " takes ",
                 bytes, " bytes, its data_offsets [", entry.begin, ", ", entry.end, "] hold ",
                 entry.end - entry.begin);
    return entry;
  }

  // The tensors cover the data exactly: no overlap, no gap, nothing behind the last. Returns the
  // entries' numbers as they lie in the file.
  std::vector<std::size_t> check_layout(const std::vector<Entry>& entries) const {
    std::vector<std::size_t> order(entries.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(entries[a].begin, entries[a].end) <
             std::pair(entries[b].begin, entries[b].end);
    });
    std::uint64_t at = 0;
    std::string before = "the header";
    for (const std::size_t i : order) {
      const Entry& entry = entries[i];
      check_tensor(entry.begin >= at, entry.name, "starts at ", entry.begin, ", inside ", before,
                   ", which ends at ", at, ": overlapping offsets");
      check_tensor(entry.begin == at, entry.name, "starts at ", entry.begin, ", but ", before,
                   " ends at ", at, ": ", entry.begin - at, " bytes belong to no tensor");
      at = entry.end;
      before = "tensor '" + entry.name + "'";
    }
    check(at == size_ - data_, size_ - data_ - at, " bytes after ", before, " belong to no tensor");
    return order;
  }

  // Any other byte in a bool is undefined behaviour to read.
  void check_booleans(const std::string& name, const Tensor& elements) const {
    const auto* bytes = static_cast<const std::uint8_t*>(elements.raw());
    for (std::int64_t i = 0; i < elements.numel(); ++i) {
      check_tensor(bytes[i] <= 1, name, "element ", i, " of a BOOL: expected 0 or 1, got ",
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
  RunningChecksum sum_;
  std::string expected_;  // empty: the header says none
};

[[noreturn]] void fail_to_read(const std::string& name, const std::string& what) {
  const int number = errno;
  throw UnreadableFile(
      concat("safetensors ", name, ": ", what, ": ", std::generic_category().message(number)));
}

}  // namespace

Safetensors parse_safetensors(std::span<const std::uint8_t> content, std::string_view name) {
  return Reader(name, content.size(),
                [&](std::uint64_t at, void* to, std::uint64_t bytes) {
                  if (bytes > 0) std::memcpy(to, content.data() + at, bytes);
                })
      .read();
}

namespace {

Reader reader_of(const std::filesystem::path& path, std::uint64_t& size) {
  const std::string name = path.string();
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  PEAL_CHECK(file >= 0 || errno != ENOENT, "safetensors ", name,
             ": cannot open: ", std::generic_category().message(errno));
  if (file < 0) fail_to_read(name, "cannot open");
  const std::shared_ptr<void> close(nullptr, [file](void*) { ::close(file); });
  struct stat status;  // of the file that is read: another one may have its name by now
  if (::fstat(file, &status) != 0) fail_to_read(name, "cannot read");
  PEAL_CHECK(S_ISREG(status.st_mode), "safetensors ", name, ": cannot read: it is no regular file");
  size = static_cast<std::uint64_t>(status.st_size);
  return {name, size, [=](std::uint64_t at, void* to, std::uint64_t bytes) {
            (void)close;
            char* next = static_cast<char*>(to);
            while (bytes > 0) {
              const ssize_t n = ::pread(file, next, bytes, static_cast<off_t>(at));
              if (n < 0 && errno == EINTR) continue;
              if (n < 0) fail_to_read(name, concat("reading at byte ", at));
              PEAL_CHECK(n > 0, "safetensors ", name, ": ended at byte ", at, " of ", size,
                         ": it was cut while it was read");
              next += n;
              at += static_cast<std::uint64_t>(n);
              bytes -= static_cast<std::uint64_t>(n);
            }
          }};
}

}  // namespace

Safetensors load_safetensors(const std::filesystem::path& path) {
  std::uint64_t size = 0;
  return reader_of(path, size).read();
}

struct SafetensorsFile::Body {
  std::uint64_t size = 0;
  Reader reader;
  std::vector<Entry> entries = {};
  Metadata metadata = {};
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) {
  std::uint64_t size = 0;
  Reader reader = reader_of(path, size);
  body_ = std::make_shared<Body>(Body{size, std::move(reader)});
  body_->reader.open(body_->entries, body_->metadata);
  for (const Entry& entry : body_->entries) {
    tensors_.push_back({entry.name, entry.dtype, entry.shape});
  }
}

std::uint64_t SafetensorsFile::bytes() const { return body_->size; }

const Metadata& SafetensorsFile::metadata() const { return body_->metadata; }

std::string SafetensorsFile::checksum() const {
  const auto found = body_->metadata.find(std::string(checksum_key));
  return found == body_->metadata.end() ? "" : found->second;
}

void SafetensorsFile::check() const { (void)body_->reader.check_rest(body_->metadata); }

void SafetensorsFile::read(std::string_view name, std::int64_t begin, const Tensor& into) const {
  const auto found = std::find_if(body_->entries.begin(), body_->entries.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  PEAL_CHECK(found != body_->entries.end(), "safetensors: it has no tensor '", name, "'");
  body_->reader.read_range(*found, begin, into);
}

}  // namespace peal
