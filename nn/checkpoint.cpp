// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/lone_ranks.h>
#include <peal/autograd/core/safetensors_checksum.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/module_keys.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

namespace peal::nn {

// What a file holds: parts in their order, or a model alone.
struct CheckpointContent {
  std::vector<std::pair<std::string, NamedTensors>> parts;
  Metadata metadata;
  std::string checksum = {};
  bool is_checkpoint = true;

  NamedTensors* find(std::string_view name) {
    for (auto& [own, tensors] : parts) {
      if (own == name) return &tensors;
    }
    return nullptr;
  }
};

namespace {

constexpr std::string_view own_prefix = "peal.";
const std::string parts_key = "peal.parts";
// Of the first format: model keys without a prefix, the generator as text.
const std::string old_seed_key = "peal.generator.seed", old_offset_key = "peal.generator.offset";

std::int64_t old_number(const std::filesystem::path& path, Metadata& metadata,
                        const std::string& key) {
  const auto node = metadata.extract(key);
  const std::string text = node.empty() ? "nothing" : node.mapped();
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  PEAL_CHECK(error == std::errc() && end == text.data() + text.size(), "load ", path.string(),
             ": metadata '", key, "': expected a number, got '", text, "'");
  return static_cast<std::int64_t>(number);
}

void split_old(const std::filesystem::path& path, Safetensors& file, CheckpointContent& content) {
  const auto seed = old_number(path, content.metadata, old_seed_key);
  const auto offset = old_number(path, content.metadata, old_offset_key);
  content.parts = {{"model", {}}, {"optimizer", {}}};
  for (auto& [name, tensor] : file.tensors) {
    const std::size_t dot = name.find('.');
    const std::string prefix = name.substr(0, dot);
    if (prefix != "optimizer" && prefix != "extra") {
      content.find("model")->emplace_back(name, std::move(tensor));
      continue;
    }
    if (content.find(prefix) == nullptr) content.parts.emplace_back(prefix, NamedTensors());
    content.find(prefix)->emplace_back(name.substr(dot + 1), std::move(tensor));
  }
  content.parts.push_back(
      {"random",
       {{"seed", Tensor::scalar(seed, Device{})}, {"offset", Tensor::scalar(offset, Device{})}}});
}

void split(const std::filesystem::path& path, Safetensors& file, const std::string& names,
           CheckpointContent& content) {
  std::istringstream words(names);
  for (std::string name; words >> name;) content.parts.emplace_back(name, NamedTensors());
  for (auto& [name, tensor] : file.tensors) {
    const std::size_t dot = name.find('.');
    NamedTensors* const part =
        dot == std::string::npos ? nullptr : content.find(std::string_view(name).substr(0, dot));
    PEAL_CHECK(part != nullptr, "load ", path.string(), ": the tensor '", name,
               "' belongs to none of the parts that its metadata lists: ", names);
    part->emplace_back(name.substr(dot + 1), std::move(tensor));
  }
}

CheckpointContent read(const std::filesystem::path& path) {
  Safetensors file = load_safetensors(path);
  CheckpointContent content;
  content.metadata = std::move(file.metadata);
  content.checksum = std::move(file.checksum);
  if (const auto node = content.metadata.extract(parts_key); !node.empty()) {
    split(path, file, node.mapped(), content);
  } else if (content.metadata.contains(old_seed_key)) {
    split_old(path, file, content);
  } else {
    content.parts.emplace_back("model", std::move(file.tensors));
    content.is_checkpoint = false;
  }
  return content;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all.empty() ? "(none)" : all;
}

// f(), with what is loaded put before what goes wrong.
template <class F>
void naming(const std::string& what, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    fail(concat("load ", what, ": ", error.what()));
  }
}

std::vector<SavedTensor> outline_of_state(const NamedTensors& state) {
  std::vector<SavedTensor> all;
  for (const auto& [name, tensor] : state) all.push_back({name, tensor.dtype(), tensor.shape()});
  return all;
}

void check_distinct(std::string_view what, const std::vector<Part>& parts) {
  std::set<std::string_view> seen;
  for (const Part& part : parts) {
    PEAL_CHECK(seen.insert(part.name()).second, what, ": the part '", part.name(), "' comes twice");
  }
}

Metadata with_checksum(Metadata metadata) {
  metadata[std::string(checksum_key)];
  return metadata;
}

// Of tensors that are the parts' own.
Snapshot gather(std::string_view what, const std::vector<Part>& parts, const Metadata& metadata) {
  warn_of_lone_ranks();
  check_distinct(what, parts);
  for (const auto& [name, text] : metadata) {
    PEAL_CHECK(!name.starts_with(own_prefix), what, ": metadata '", name, "' starts with '",
               own_prefix, "', which is peal's own; rename it");
  }
  Snapshot all{{}, metadata};
  std::string names;
  for (const Part& part : parts) {
    names += (names.empty() ? "" : " ") + part.name();
    NamedTensors state = part.state_dict();
    check_no_pieces(concat(what, ": part '", part.name(), "'"), state);
    for (auto& [name, tensor] : state) {
      all.tensors.emplace_back(part.name() + "." + name, std::move(tensor));
    }
  }
  all.metadata[parts_key] = names;
  return all;
}

}  // namespace

void Part::check_name() const {
  PEAL_CHECK(!name_.empty() && name_.find_first_of(". \t\n") == std::string::npos,
             "checkpoint: a part's name must not be empty or have a dot or a blank, got '", name_,
             "'");
}

void Part::load_state_dict(const NamedTensors& state) const {
  PEAL_CHECK(load_ != nullptr, "the object is const, so it can be saved but not loaded");
  load_(state);
}

LocalState Part::local_state() const {
  if (local_) return local_();
  return model_.empty() ? whole_state(save_, load_) : whole_model_state(model_, save_, load_);
}

void save_model(const std::filesystem::path& path, const Module& model, const Metadata& metadata) {
  warn_of_lone_ranks();
  const NamedTensors state = model.state_dict();
  check_no_pieces(concat("save ", path.string()), state);
  save_safetensors(path, state, with_checksum(metadata));
}

void load_model(const std::filesystem::path& path, Module& model) {
  CheckpointContent content = read(path);
  const NamedTensors* const state = content.find("model");
  if (state == nullptr) {
    std::vector<std::string> names;
    for (const auto& [name, tensors] : content.parts) names.push_back(name);
    fail(concat("load ", path.string(),
                ": this checkpoint has no part 'model', but: ", list_of(names)));
  }
  naming(path.string(), [&] {
    check_keys(model, outline_of_state(*state), true);
    model.load_state_dict(taken_over(model.state_dict(), *state));
  });
}

void save(const std::filesystem::path& path, const std::vector<Part>& parts,
          const Metadata& metadata) {
  save_snapshot(path, gather(concat("save ", path.string()), parts, metadata));
}

Snapshot snapshot(const std::vector<Part>& parts, const Metadata& metadata) {
  Snapshot now = gather("snapshot", parts, metadata);
  for (auto& [name, tensor] : now.tensors) {
    tensor = tensor.device() == Device{} ? tensor.detach().clone() : tensor.detach().to(Device{});
  }
  return now;
}

void save_snapshot(const std::filesystem::path& path, const Snapshot& snapshot) {
  save_safetensors(path, snapshot.tensors, with_checksum(snapshot.metadata));
}

CheckpointFile::CheckpointFile(const std::filesystem::path& path)
    : path_(path), content_(std::make_shared<CheckpointContent>(read(path))) {
  PEAL_CHECK(content_->is_checkpoint, "load ", path.string(),
             ": this is a model, not a checkpoint (its metadata has no '", parts_key,
             "'); use load_model, or load_sharded where a wrapper has cut the model");
}

const Metadata& CheckpointFile::metadata() const { return content_->metadata; }

const std::string& CheckpointFile::checksum() const { return content_->checksum; }

bool CheckpointFile::has(std::string_view part) const { return content_->find(part) != nullptr; }

Checkpoint CheckpointFile::load(const std::vector<Part>& parts, bool strict) const {
  check_distinct(concat("load ", path_.string()), parts);
  Checkpoint checkpoint;
  checkpoint.metadata = content_->metadata;
  std::vector<std::string> there;
  for (const auto& [name, tensors] : content_->parts) {
    there.push_back(name);
    if (std::none_of(parts.begin(), parts.end(),
                     [&, &own = name](const Part& part) { return part.name() == own; })) {
      checkpoint.unexpected_parts.push_back(name);
    }
  }
  for (const Part& part : parts) {
    if (content_->find(part.name()) == nullptr) checkpoint.missing_parts.push_back(part.name());
  }
  PEAL_CHECK(!strict || (checkpoint.missing_parts.empty() && checkpoint.unexpected_parts.empty()),
             "load ", path_.string(), ": its parts are ", list_of(there),
             "; missing: ", list_of(checkpoint.missing_parts),
             "; not asked for: ", list_of(checkpoint.unexpected_parts),
             " (strict = false passes over both)");
  for (const Part& part : parts) {
    const NamedTensors* const state = content_->find(part.name());
    if (state == nullptr) continue;
    naming(concat(path_.string(), ": part '", part.name(), "'"),
           [&] { part.load_state_dict(*state); });
  }
  return checkpoint;
}

Checkpoint load(const std::filesystem::path& path, const std::vector<Part>& parts, bool strict) {
  return CheckpointFile(path).load(parts, strict);
}

}  // namespace peal::nn
