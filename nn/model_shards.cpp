// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/safetensors_file.h>
#include <peal/autograd/ops/choose.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/model_shards.h>
#include <peal/nn/module_keys.h>
#include <peal/nn/tied_writes.h>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

namespace fs = std::filesystem;

constexpr const char* whole_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";

bool is_shard(const std::string& name) {
  return name.starts_with("model-") && name.ends_with(".safetensors");
}

// In the state's order, a file full after the other.
std::vector<NamedTensors> in_shards(const NamedTensors& state, std::int64_t most) {
  std::vector<NamedTensors> shards(1);
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : state) {
    const auto more = tensor.numel() * static_cast<std::int64_t>(size_of(tensor.dtype()));
    if (!shards.back().empty() && bytes + more > most) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().emplace_back(name, tensor);
  }
  return shards;
}

// What an index says: the file of each tensor.
std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  std::ifstream file(index, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  PEAL_CHECK(file.good() || file.eof(), index.string(), ": cannot be read");
  std::map<std::string, std::string> all;
  try {
    all = nlohmann::json::parse(text).at("weight_map").get<decltype(all)>();
  } catch (const nlohmann::json::exception& error) {
    fail(concat(index.string(),
                ": expected an index with a weight_map, {\"NAME\": \"FILE\"}: ", error.what()));
  }
  for (const auto& [tensor, name] : all) {
    PEAL_CHECK(!name.empty() && name != ".." && name.find('/') == std::string::npos, index.string(),
               ": ", tensor, ": expected a file of the same folder, got '", name, "'");
  }
  return all;
}

// Where files are, and what an index says of them; of one file nothing.
struct ShardFiles {
  std::vector<fs::path> paths;
  fs::path index;
  std::map<std::string, std::string> weight_map;
};

ShardFiles shard_files(const fs::path& from) {
  if (!fs::is_directory(from)) {
    PEAL_CHECK(fs::exists(from), from.string(), ": there is no such file or folder");
    if (from.extension() != ".json") return {{from}, {}, {}};
  }
  const fs::path index = fs::is_directory(from) ? from / index_file : from;
  if (!fs::exists(index)) {
    PEAL_CHECK(fs::exists(from / whole_file), from.string(), ": there is neither ", index_file,
               " nor ", whole_file, " in it; the saving of a model may have been cut short");
    return {{from / whole_file}, {}, {}};
  }
  ShardFiles files{{}, index, read_weight_map(index)};
  std::set<std::string> names;
  for (const auto& [tensor, name] : files.weight_map) names.insert(name);
  for (const std::string& name : names) files.paths.push_back(index.parent_path() / name);
  return files;
}

void check_index(const ShardFiles& files, const std::vector<SafetensorsFile>& opened) {
  if (files.index.empty()) return;
  std::size_t found = 0;
  for (std::size_t f = 0; f < opened.size(); ++f) {
    const std::string name = files.paths[f].filename().string();
    for (const SavedTensor& each : opened[f].tensors()) {
      const auto said = files.weight_map.find(each.name);
      PEAL_CHECK(said != files.weight_map.end() && said->second == name, files.index.string(), ": ",
                 each.name, " is in ", name, ", and the index says ",
                 said == files.weight_map.end() ? "nothing of it" : said->second,
                 "; they are of two savings");
      ++found;
    }
  }
  PEAL_CHECK(found == files.weight_map.size(), files.index.string(), ": it names ",
             files.weight_map.size(), " tensors, and the files have ", found,
             " of them; they are of two savings");
}

}  // namespace

void save_model_shards(const fs::path& folder, const Module& model, const ShardOptions& options) {
  save_model_shards(folder, model.state_dict(), options);
}

void save_model_shards(const fs::path& folder, const NamedTensors& state,
                       const ShardOptions& options) {
  PEAL_CHECK(options.max_shard_size > 0,
             "save_model_shards: expected a max_shard_size above 0, got ", options.max_shard_size);
  const auto shards = in_shards(state, options.max_shard_size);
  for (const auto& [name, tensor] : state) tensor.raw();  // Error before what is there is touched
  fs::create_directories(folder);
  fs::remove(folder / index_file);
  std::set<std::string> names;
  nlohmann::json weight_map = nlohmann::json::object();
  std::int64_t bytes = 0;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::string name =
        shards.size() == 1 ? whole_file
                           : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    Metadata metadata = options.metadata;
    metadata.emplace("format", "pt");  // what Hugging Face's readers ask for
    save_snapshot(folder / name, {shards[s], metadata});
    names.insert(name);
    for (const auto& [tensor_name, tensor] : shards[s]) {
      weight_map[tensor_name] = name;
      bytes += tensor.numel() * static_cast<std::int64_t>(size_of(tensor.dtype()));
    }
  }
  if (shards.size() > 1) {
    const std::string text =
        nlohmann::json{{"metadata", {{"total_size", bytes}}}, {"weight_map", weight_map}}.dump(2);
    AtomicFile index(folder / index_file);
    index.write(text.data(), text.size());
    index.commit();
  }
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if ((name == whole_file || is_shard(name)) && !names.contains(name)) {
      old.push_back(entry.path());
    }
  }
  for (const fs::path& each : old) fs::remove(each);
}

IncompatibleKeys load_checkpoint_in_model(Module& model, const fs::path& from, bool strict) {
  const ShardFiles files = shard_files(from);
  std::vector<SafetensorsFile> opened;
  std::vector<SavedTensor> saved;
  std::set<std::string_view> seen;
  for (const fs::path& path : files.paths) opened.emplace_back(path);
  check_index(files, opened);
  for (std::size_t f = 0; f < opened.size(); ++f) {
    PEAL_CHECK(!opened[f].metadata().contains("peal.parts"), files.paths[f].string(),
               ": this is a checkpoint of several parts; use nn::load or nn::load_model");
    for (const SavedTensor& each : opened[f].tensors()) {
      PEAL_CHECK(seen.insert(each.name).second, files.paths[f].string(), ": ", each.name,
                 " is in another file, too");
      saved.push_back(each);
    }
  }
  IncompatibleKeys passed_over;
  try {
    passed_over = check_keys(model, saved, strict);
  } catch (const Error& error) {
    fail(concat(from.string(), ": ", error.what()));
  }
  for (const SafetensorsFile& file : opened) file.check();
  std::unordered_map<std::string_view, std::pair<const SafetensorsFile*, const SavedTensor*>> there;
  for (const SafetensorsFile& file : opened) {
    for (const SavedTensor& each : file.tensors()) there[each.name] = {&file, &each};
  }
  const NoGrad guard;
  TiedWrites writes(model.class_name());
  for (const auto& [name, own] : model.state_dict()) {
    const auto found = there.find(name);
    if (found == there.end()) continue;
    const auto& [file, each] = found->second;
    const Tensor read = Tensor::empty(each->shape, each->dtype, Device{});
    file->read(name, 0, read);
    writes.write(name, own, read);
  }
  return passed_over;
}

}  // namespace peal::nn
