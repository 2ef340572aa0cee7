// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/safetensors_checksum.h>
#include <peal/autograd/core/safetensors_format.h>
#include <peal/nn/parallel/sharded/checkpoint_index.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>

#include <nlohmann/json.hpp>

namespace peal::nn {
namespace {

using Json = nlohmann::ordered_json;
using safetensors_format::type_names;

constexpr const char* index_format = "peal.sharded_checkpoint";
constexpr int index_version = 1;
constexpr std::string_view before_digits = "\"checksum\":\"crc32:";

Json json_of(const CheckpointIndex::Entry& entry) {
  const auto type =
      std::ranges::find(type_names, entry.tensor.dtype, &safetensors_format::TypeName::dtype);
  const Shape& shape = entry.tensor.shape;
  Json runs = Json::array();
  for (const auto& run : entry.runs) {
    runs.push_back(
        {{"file", run.file}, {"tensor", run.tensor}, {"begin", run.begin}, {"end", run.end}});
  }
  return {{"dtype", type->name},
          {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())},
          {"runs", runs}};
}

CheckpointIndex::Entry entry_of(const std::string& name, const Json& json) {
  CheckpointIndex::Entry entry{{name, DType::f32, {}}, {}};
  const auto type = std::ranges::find_if(
      type_names, [&](const auto& known) { return json.at("dtype") == known.name; });
  PEAL_CHECK(type != type_names.end(), name, ": unknown dtype ", json.at("dtype").dump());
  entry.tensor.dtype = type->dtype;
  const auto sizes = json.at("shape").get<std::vector<std::int64_t>>();
  PEAL_CHECK(sizes.size() <= Shape::max_dims, name, ": a shape of ", sizes.size(), " sizes");
  auto bytes = static_cast<std::int64_t>(size_of(type->dtype));
  for (const std::int64_t size : sizes) {
    PEAL_CHECK(size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes), name,
               ": no such size: ", size);
    entry.tensor.shape.push_back(size);
  }
  for (const Json& run : json.at("runs")) {
    entry.runs.push_back({run.at("file").get<std::size_t>(), run.at("tensor").get<std::string>(),
                          run.at("begin").get<std::int64_t>(), run.at("end").get<std::int64_t>()});
  }
  return entry;
}

// The place of the digits, which end the text; nothing where there are none.
std::size_t place_in(std::string_view text) {
  const std::size_t at = text.rfind(before_digits);
  return at == std::string_view::npos ? at : at + before_digits.size();
}

std::string digits_of(std::string text) {
  text.replace(place_in(text), safetensors_format::no_digits.size(), safetensors_format::no_digits);
  RunningChecksum sum;
  sum.add(text.data(), text.size());
  return sum.digits();
}

CheckpointIndex index_of(const Json& json) {
  PEAL_CHECK(json.is_object() && json.value("format", "") == index_format,
             "it is no index of a sharded checkpoint");
  PEAL_CHECK(json.at("version") == index_version, "expected version ", index_version, ", got ",
             json.at("version").dump(), ": a newer peal wrote it");
  CheckpointIndex index;
  index.world = json.at("world").get<int>();
  index.parts = json.at("parts").get<std::vector<std::string>>();
  index.metadata = json.at("metadata").get<Metadata>();
  index.checksum = json.at("checksum").get<std::string>();
  for (const Json& file : json.at("files")) {
    index.files.push_back({file.at("name").get<std::string>(),
                           file.at("bytes").get<std::uint64_t>(),
                           file.at("checksum").get<std::string>()});
    PEAL_CHECK(std::filesystem::path(index.files.back().name).filename() == index.files.back().name,
               "a file of the folder is called '", index.files.back().name, "'");
  }
  for (const auto& [name, tensor] : json.at("tensors").items()) {
    index.tensors.push_back(entry_of(name, tensor));
  }
  return index;
}

}  // namespace

std::string to_json(const CheckpointIndex& index) {
  Json files = Json::array(), tensors = Json::object();
  for (const auto& file : index.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}});
  }
  for (const auto& entry : index.tensors) tensors[entry.tensor.name] = json_of(entry);
  const Json json{{"format", index_format},     {"version", index_version},
                  {"world", index.world},       {"parts", index.parts},
                  {"metadata", index.metadata}, {"files", files},
                  {"tensors", tensors},         {"checksum", checksum_text("00000000")}};
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception& error) {
    fail(concat("a name or metadata is not UTF-8: ", error.what()));
  }
  const std::string digits = digits_of(text);
  return text.replace(place_in(text), digits.size(), digits);
}

CheckpointIndex index_of_json(const std::string& text, const std::string& path) {
  try {
    CheckpointIndex index = index_of(Json::parse(text));
    const std::size_t at = place_in(text);
    PEAL_CHECK(is_checksum(index.checksum) && at != std::string::npos, "it has no checksum");
    const std::string got = checksum_text(digits_of(text));
    PEAL_CHECK(got == index.checksum, "expected the checksum ", index.checksum,
               ", which it says, got ", got,
               ": it is damaged, or was changed after it was saved; copy it again");
    return index;
  } catch (const Json::exception& error) {
    fail(
        concat(path, ": it is no index of a sharded checkpoint, or was cut short: ", error.what()));
  } catch (const Error& error) {
    fail(concat(path, ": ", error.what()));
  }
}

CheckpointIndex merged(const std::vector<CheckpointIndex>& of_ranks) {
  CheckpointIndex all = of_ranks.front();
  std::unordered_map<std::string, std::size_t> numbers;
  for (std::size_t i = 0; i < all.tensors.size(); ++i) numbers[all.tensors[i].tensor.name] = i;
  for (std::size_t r = 1; r < of_ranks.size(); ++r) {
    const std::size_t first = all.files.size();
    all.files.insert(all.files.end(), of_ranks[r].files.begin(), of_ranks[r].files.end());
    for (const auto& [tensor, runs] : of_ranks[r].tensors) {
      const auto [found, fresh] = numbers.emplace(tensor.name, all.tensors.size());
      if (fresh) all.tensors.push_back({tensor, {}});
      auto& entry = all.tensors[found->second];
      PEAL_CHECK(entry.tensor.dtype == tensor.dtype && entry.tensor.shape == tensor.shape,
                 tensor.name, " is ", entry.tensor.dtype, " ", entry.tensor.shape,
                 " on an earlier rank, and ", tensor.dtype, " ", tensor.shape, " on rank ", r);
      for (CheckpointIndex::Run run : runs) {
        run.file += first;
        entry.runs.push_back(std::move(run));
      }
    }
  }
  return all;
}

void check_covered(CheckpointIndex& index, const std::string& path) {
  for (auto& [tensor, runs] : index.tensors) {
    std::ranges::sort(runs, {}, [](const auto& run) { return std::pair(run.begin, run.end); });
    std::int64_t at = 0;
    const auto missing = [&](std::int64_t end) {
      return concat(path, ": ", tensor.name, " ", tensor.shape, ": elements ", at, " to ", end,
                    " are in no file");
    };
    for (const auto& run : runs) {
      PEAL_CHECK(run.file < index.files.size() && run.begin < run.end, path, ": ", tensor.name,
                 ": a run from ", run.begin, " to ", run.end, " in file ", run.file,
                 ", and there are ", index.files.size());
      PEAL_CHECK(run.begin >= at, path, ": ", tensor.name, " ", tensor.shape, ": elements ",
                 run.begin, " to ", std::min(at, run.end), " are there twice, also in ",
                 index.files[run.file].name);
      if (run.begin > at) fail(missing(run.begin));
      at = run.end;
    }
    if (at < tensor.shape.numel()) fail(missing(tensor.shape.numel()));
    PEAL_CHECK(at == tensor.shape.numel(), path, ": ", tensor.name, " ", tensor.shape,
               ": elements up to ", at, " are more than it has");
  }
}

CheckpointIndex index_of_file(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  CheckpointIndex index;
  index.metadata = file.metadata();
  index.metadata.erase(std::string(checksum_key));
  index.checksum = file.checksum();
  index.files.push_back({path.filename().string(), file.bytes(), index.checksum});
  const auto parts = index.metadata.extract("peal.parts");
  std::istringstream words(parts.empty() ? "model" : parts.mapped());
  for (std::string name; words >> name;) index.parts.push_back(name);
  for (const SavedTensor& tensor : file.tensors()) {
    CheckpointIndex::Entry entry{tensor, {}};
    if (parts.empty()) entry.tensor.name = "model." + tensor.name;
    if (tensor.shape.numel() > 0) entry.runs.push_back({0, tensor.name, 0, tensor.shape.numel()});
    index.tensors.push_back(std::move(entry));
  }
  return index;
}

}  // namespace peal::nn
