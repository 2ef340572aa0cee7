// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/autograd/core/safetensors_checksum.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/sharded/checkpoint_index.h>
#include <peal/nn/parallel/sharded/checkpoint_ranks.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

namespace peal::nn {
namespace checkpointed {

void check_names(const std::vector<Part>& parts, const Metadata& metadata) {
  std::set<std::string> names;
  for (const Part& part : parts) {
    PEAL_CHECK(names.insert(part.name()).second, "the part '", part.name(), "' comes twice");
  }
  for (const auto& [name, text] : metadata) {
    PEAL_CHECK(!name.starts_with("peal."), "metadata '", name,
               "' starts with 'peal.', which is peal's own; rename it");
  }
}

std::string list_of(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all.empty() ? "(none)" : all;
}

std::string text_of(const std::filesystem::path& path) {
  PEAL_CHECK(std::filesystem::is_regular_file(path), path.string(), ": it is no regular file");
  std::ifstream file(path, std::ios::binary);
  PEAL_CHECK(file.good(), path.string(), ": cannot open it");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  PEAL_CHECK(!file.bad(), path.string(), ": cannot read it");
  return text;
}

}  // namespace checkpointed

namespace {

constexpr std::string_view shard_begin = "shard-", shard_end = ".safetensors";

// The number of a file that is called as shard_name() says; nothing for others.
std::optional<int> number_of(std::string_view name) {
  const char* at = name.data();
  const char* const end = at + name.size();
  int number = -1;
  for (const std::string_view before :
       {shard_begin, std::string_view("-rank-"), std::string_view("-of-")}) {
    if (!std::string_view(at, end).starts_with(before)) return std::nullopt;
    at += before.size();
    int read = -1;
    const auto [rest, problem] = std::from_chars(at, end, read);
    if (problem != std::errc() || read < 0) return std::nullopt;
    if (number < 0) number = read;
    at = rest;
  }
  return std::string_view(at, end) == shard_end ? std::optional(number) : std::nullopt;
}

bool is_shard(std::string_view name) { return number_of(name).has_value(); }

// Higher than that of any file that is there.
int next_number(const std::filesystem::path& folder) {
  int highest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    highest = std::max(highest, number_of(name).value_or(0));
  }
  PEAL_CHECK(highest < std::numeric_limits<int>::max(), folder.string(),
             " has a shard with the highest number that there is; save into another folder");
  return highest + 1;
}

std::string shard_name(int number, int rank, int world) {
  return concat(shard_begin, number, "-rank-", rank, "-of-", world, shard_end);
}

void remove_quietly(const std::filesystem::path& path) {
  std::error_code none;
  std::filesystem::remove(path, none);
}

// All files of shards but those.
void remove_others(const std::filesystem::path& folder,
                   const std::vector<CheckpointIndex::File>& files) {
  std::set<std::string> stay;
  for (const auto& file : files) stay.insert(file.name);
  std::vector<std::filesystem::path> old;
  std::error_code none;  // who cannot remove them now does it after the next save
  for (std::filesystem::directory_iterator at(folder, none), end; !none && at != end;
       at.increment(none)) {
    const std::string name = at->path().filename().string();
    if (is_shard(name) && !stay.contains(name)) old.push_back(at->path());
  }
  for (const std::filesystem::path& path : old) remove_quietly(path);
}

// What this rank writes, and what it says of that.
struct Shard {
  CheckpointIndex index;
  NamedTensors tensors;
  std::string apart = {};  // digests of what each rank trains by itself
};

Shard shard_of(const std::vector<Part>& parts, const checkpointed::Ranks& ranks,
               const Metadata& metadata) {
  checkpointed::check_names(parts, metadata);
  Shard shard;
  shard.index.world = ranks.world();
  shard.index.metadata = metadata;
  // Tied tensors are written once.
  std::map<std::tuple<const Storage*, std::int64_t, std::int64_t>, std::string> written;
  for (const Part& part : parts) {
    shard.index.parts.push_back(part.name());
    for (const LocalTensor& local : part.local_state().save()) {
      const std::string key = part.name() + "." + local.key;
      PEAL_CHECK(local.elements.defined(), key, " has no value");
      CheckpointIndex::Entry entry{{key, local.elements.dtype(), local.shape}, {}};
      if (local.trained_apart) shard.apart += digest_line(key, local.elements);
      const std::int64_t count = local.elements.numel(), begin = local.begin.value_or(0);
      const bool saves = local.begin ? !local.saved_elsewhere : ranks.rank() == 0;
      if (count > 0 && saves) {
        const Tensor& tensor = local.elements;
        const auto [name, fresh] =
            written.try_emplace({tensor.storage().get(), tensor.body().at, count}, key);
        if (fresh) shard.tensors.emplace_back(key, tensor);
        entry.runs.push_back({0, name->second, begin, begin + count});
      }
      shard.index.tensors.push_back(std::move(entry));
    }
  }
  return shard;
}

// Makes the folder, and says the number of this save.
int begin_save(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> fresh;
  for (std::filesystem::path at = std::filesystem::absolute(folder).lexically_normal();
       !std::filesystem::exists(at); at = at.parent_path()) {
    fresh.push_back(at.has_filename() ? at.parent_path() : at.parent_path().parent_path());
  }
  std::filesystem::create_directories(folder);
  for (const std::filesystem::path& above : fresh) flush_folder(above);
  return next_number(folder);
}

void write_shard(const std::filesystem::path& path, Shard& shard) {
  save_safetensors(path, shard.tensors, {{std::string(checksum_key), ""}});
  const SafetensorsFile file(path);
  shard.index.files = {{path.filename().string(), file.bytes(), file.checksum()}};
}

// Rank 0's: of what all ranks say.
void write_index(const std::filesystem::path& folder, const std::vector<std::string>& texts) {
  std::vector<CheckpointIndex> of_ranks;
  for (const std::string& text : texts) {
    of_ranks.push_back(index_of_json(text, concat("rank ", of_ranks.size())));
  }
  CheckpointIndex all = merged(of_ranks);
  check_covered(all, "the parts of the ranks");
  for (std::size_t r = 0; r < all.files.size(); ++r) {
    std::error_code none;
    PEAL_CHECK(
        std::filesystem::file_size(folder / all.files[r].name, none) == all.files[r].bytes && !none,
        "rank ", r, " has written ", all.files[r].name,
        ", which is not there for rank 0; name a folder that all ranks share");
  }
  const std::string text = to_json(all);
  AtomicFile file(folder / sharded_index_name);
  file.write(text.data(), text.size());
  file.commit();
  remove_others(folder, all.files);
  try {
    remove_stale_temporaries(folder, is_shard, true);
  } catch (const std::exception&) {  // as above
  }
}

// Of a save that failed; unless it failed after its index came into its place.
void take_back(const std::filesystem::path& folder, int number, int world) {
  try {
    const std::string text = checkpointed::text_of(folder / sharded_index_name);
    if (text.find(shard_name(number, 0, world)) != std::string::npos) return;
  } catch (const std::exception&) {  // there is none
  }
  for (int r = 0; r < world; ++r) remove_quietly(folder / shard_name(number, r, world));
}

}  // namespace

void save_sharded(const std::filesystem::path& folder, const std::vector<Part>& parts,
                  const comm::ProcessGroup& group, const Metadata& metadata) {
  warn_of_lone_ranks();
  const checkpointed::Ranks ranks{group, concat("save ", folder.string())};
  Shard shard;
  int number = 0;
  ranks.together(
      [&] {
        shard = shard_of(parts, ranks, metadata);
        if (ranks.rank() == 0) number = begin_save(folder);
        return checkpointed::list_of(shard.index.parts) + shard.apart;
      },
      "save the same parts on every rank; what each trains by itself (ignored_modules) one file "
      "cannot have: take state_dict() on every rank, and nn::save() it to a file of its own");
  if (group) number = std::stoi(group.broadcast_object(std::to_string(number)));
  const std::filesystem::path mine = folder / shard_name(number, ranks.rank(), ranks.world());
  std::vector<std::string> texts(1);
  try {
    ranks.together([&] {
      write_shard(mine, shard);
      texts[0] = to_json(shard.index);  // fails for words that are no UTF-8
      return std::string();
    });
  } catch (...) {
    remove_quietly(mine);
    throw;
  }
  // From here on an index may name the file, so only rank 0 removes any.
  if (group) texts = group.gather_object(texts[0]);
  ranks.together([&] {
    if (ranks.rank() != 0) return std::string();
    try {
      write_index(folder, texts);
    } catch (...) {
      take_back(folder, number, ranks.world());
      throw;
    }
    return std::string();
  });
}

}  // namespace peal::nn
