// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/autograd/core/safetensors_checksum.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/parallel/sharded/checkpoint_index.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

namespace peal::nn {
namespace {

namespace fs = std::filesystem;

// All ranks, or one process.
struct Ranks {
  const comm::ProcessGroup& group;
  std::string what;

  int rank() const { return group ? group.rank() : 0; }
  int world() const { return group ? group.world() : 1; }
  // f(), whatever its time; what goes wrong on a rank is an Error on all. `mine` after it is the
  // same on all.
  template <class F>
  void together(F&& f, const std::string& advice = {}) const {
    std::string wrong, mine;
    {
      const auto busy = group ? group.busy() : nullptr;
      try {
        mine = f();
      } catch (...) {
        wrong = words_of_failure();
      }
    }
    if (group) return comm::agree_unless(group, what, mine, wrong, advice);
    PEAL_CHECK(wrong.empty(), what, ": ", wrong);
  }
};

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

constexpr std::string_view shard_begin = "shard-", shard_end = ".safetensors";

bool is_shard(std::string_view name) {
  return name.starts_with(shard_begin) && name.ends_with(shard_end) &&
         name.find("-rank-") != std::string_view::npos;
}

// Higher than that of any file that is there.
int next_number(const fs::path& folder) {
  int highest = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!is_shard(name)) continue;
    int number = 0;
    std::from_chars(name.data() + shard_begin.size(), name.data() + name.size(), number);
    highest = std::max(highest, number);
  }
  return highest + 1;
}

std::string shard_name(int number, int rank, int world) {
  return concat(shard_begin, number, "-rank-", rank, "-of-", world, shard_end);
}

void remove_quietly(const fs::path& path) {
  std::error_code none;
  fs::remove(path, none);
}

// All files of shards but those.
void remove_others(const fs::path& folder, const std::vector<CheckpointIndex::File>& files) {
  std::set<std::string> stay;
  for (const auto& file : files) stay.insert(file.name);
  std::vector<fs::path> old;
  std::error_code none;  // who cannot remove them now does it after the next save
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) {
    const std::string name = at->path().filename().string();
    if (is_shard(name) && !stay.contains(name)) old.push_back(at->path());
  }
  for (const fs::path& path : old) remove_quietly(path);
}

// What this rank writes, and what it says of that.
struct Shard {
  CheckpointIndex index;
  NamedTensors tensors;
};

Shard shard_of(const std::vector<Part>& parts, const Ranks& ranks, const Metadata& metadata) {
  check_names(parts, metadata);
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
      const std::int64_t count = local.elements.numel(), begin = local.begin.value_or(0);
      if (count > 0 && (local.begin || ranks.rank() == 0)) {
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
int begin_save(const fs::path& folder) {
  if (fs::create_directories(folder)) {
    flush_folder(folder.has_parent_path() ? folder.parent_path() : fs::path("."));
  }
  return next_number(folder);
}

void write_shard(const fs::path& path, Shard& shard) {
  save_safetensors(path, shard.tensors, {{std::string(checksum_key), ""}});
  const SafetensorsFile file(path);
  shard.index.files = {{path.filename().string(), file.bytes(), file.checksum()}};
}

// Rank 0's: of what all ranks say.
void write_index(const fs::path& folder, const std::vector<std::string>& texts) {
  std::vector<CheckpointIndex> of_ranks;
  for (const std::string& text : texts) {
    of_ranks.push_back(index_of_json(text, concat("rank ", of_ranks.size())));
  }
  CheckpointIndex all = merged(of_ranks);
  check_covered(all, "the parts of the ranks");
  for (std::size_t r = 0; r < all.files.size(); ++r) {
    std::error_code none;
    PEAL_CHECK(fs::file_size(folder / all.files[r].name, none) == all.files[r].bytes && !none,
               "rank ", r, " has written ", all.files[r].name,
               ", which is not there for rank 0; name a folder that all ranks share");
  }
  const std::string text = to_json(all);
  AtomicFile file(folder / sharded_index_name);
  file.write(text.data(), text.size());
  file.commit();
  remove_others(folder, all.files);
  try {
    remove_stale_temporaries(folder, is_shard);
  } catch (const std::exception&) {  // as above
  }
}

std::string text_of(const fs::path& path) {
  PEAL_CHECK(fs::is_regular_file(path), path.string(), ": it is no regular file");
  std::ifstream file(path, std::ios::binary);
  PEAL_CHECK(file.good(), path.string(), ": cannot open it");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  PEAL_CHECK(!file.bad(), path.string(), ": cannot read it");
  return text;
}

// Of a save that failed; unless it failed after its index came into its place.
void take_back(const fs::path& folder, int number, int world) {
  try {
    const std::string text = text_of(folder / sharded_index_name);
    if (text.find(shard_name(number, 0, world)) != std::string::npos) return;
  } catch (const std::exception&) {  // there is none
  }
  for (int r = 0; r < world; ++r) remove_quietly(folder / shard_name(number, r, world));
}

// What load_sharded() has of one part.
struct Loading {
  const Part* part;
  LocalState local;
  std::vector<SavedTensor> saved = {};
  std::vector<const CheckpointIndex::Entry*> entries = {};
  WantedRanges wanted = {};
  NamedTensors pieces = {};
  NamedTensors before = {};  // to go back to
};

struct Source {
  fs::path folder;
  CheckpointIndex index;
};

Source source_of(const fs::path& path) {
  if (fs::is_regular_file(path)) return {path.parent_path(), index_of_file(path)};
  const fs::path file = path / sharded_index_name;
  PEAL_CHECK(fs::exists(file), file.string(),
             ": there is none, so this is no folder of a sharded checkpoint, or its first save was "
             "not finished");
  return {path, index_of_json(text_of(file), file.string())};
}

std::vector<Loading> parts_of(const CheckpointIndex& index, const std::vector<Part>& parts,
                              bool strict, Checkpoint& checkpoint) {
  check_names(parts, {});
  checkpoint.metadata = index.metadata;
  const auto is_there = [&](const Part& part) {
    return std::ranges::find(index.parts, part.name()) != index.parts.end();
  };
  std::vector<Loading> all;
  for (const Part& part : parts) {
    if (!is_there(part)) checkpoint.missing_parts.push_back(part.name());
    if (is_there(part)) all.push_back({&part, part.local_state()});
  }
  for (const std::string& name : index.parts) {
    if (std::ranges::none_of(parts, [&](const Part& part) { return part.name() == name; })) {
      checkpoint.unexpected_parts.push_back(name);
    }
  }
  PEAL_CHECK(!strict || (checkpoint.missing_parts.empty() && checkpoint.unexpected_parts.empty()),
             "its parts are ", list_of(index.parts),
             "; missing: ", list_of(checkpoint.missing_parts),
             "; not asked for: ", list_of(checkpoint.unexpected_parts),
             " (strict = false passes over both)");
  for (Loading& loading : all) {
    const std::string prefix = loading.part->name() + ".";
    for (const auto& entry : index.tensors) {
      if (!entry.tensor.name.starts_with(prefix)) continue;
      loading.saved.push_back(entry.tensor);
      loading.saved.back().name.erase(0, prefix.size());
      loading.entries.push_back(&entry);
    }
  }
  return all;
}

// f(), with the part named in what goes wrong.
template <class F>
void of_part(const Loading& loading, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    fail(concat("part '", loading.part->name(), "': ", error.what()));
  }
}

// Opens each file, compares it with the index, and looks at all bytes of this rank's share.
std::vector<SafetensorsFile> open_files(const Source& source, const Ranks& ranks) {
  std::vector<SafetensorsFile> files;
  for (std::size_t f = 0; f < source.index.files.size(); ++f) {
    const auto& expected = source.index.files[f];
    const SafetensorsFile& file = files.emplace_back(source.folder / expected.name);
    PEAL_CHECK(file.bytes() == expected.bytes && file.checksum() == expected.checksum,
               expected.name, ": the index has ", expected.bytes, " bytes with the checksum ",
               expected.checksum, ", and the file ", file.bytes(), " with ", file.checksum(),
               ": it is another one, or was cut short; copy the whole folder again");
    if (f % static_cast<std::size_t>(ranks.world()) == static_cast<std::size_t>(ranks.rank())) {
      file.check();
    }
  }
  return files;
}

void read_pieces(Loading& loading, const std::vector<SafetensorsFile>& files) {
  for (std::size_t i = 0; i < loading.saved.size(); ++i) {
    if (!loading.wanted[i]) continue;
    const auto [begin, count] = *loading.wanted[i];
    const SavedTensor& saved = loading.saved[i];
    const Tensor piece = Tensor::empty({count}, saved.dtype, Device{});
    for (const auto& run : loading.entries[i]->runs) {
      const std::int64_t from = std::max(begin, run.begin);
      const std::int64_t end = std::min(begin + count, run.end);
      if (from >= end) continue;
      files[run.file].read(run.tensor, from - run.begin, piece.detach({end - from}, from - begin));
    }
    const bool whole = count == saved.shape.numel();
    loading.pieces.emplace_back(saved.name, whole ? piece.detach(saved.shape) : piece);
  }
}

// What can still go wrong is tried, and taken back where a rank has found something.
void try_to_load(std::vector<Loading>& all, const Ranks& ranks) {
  std::vector<Loading*> tried;
  try {
    ranks.together([&] {
      for (Loading& loading : all) {
        if (loading.local.checked) continue;
        of_part(loading, [&] {
          for (const LocalTensor& local : loading.local.save()) {
            loading.before.emplace_back(local.key, local.elements);
          }
          tried.push_back(&loading);
          loading.local.load(loading.pieces);
        });
      }
      return std::string();
    });
  } catch (...) {
    for (std::size_t i = tried.size(); i-- > 0;) tried[i]->local.load(tried[i]->before);
    throw;
  }
}

}  // namespace

Checkpoint load_sharded(const fs::path& folder, const std::vector<Part>& parts,
                        const comm::ProcessGroup& group, bool strict) {
  const Ranks ranks{group, concat("load ", folder.string())};
  Source source;
  ranks.together(
      [&] {
        source = source_of(folder);
        check_covered(source.index, "its index");
        return source.index.checksum;
      },
      "these are two checkpoints; let all ranks see one folder, or copy one to all");
  Checkpoint checkpoint;
  std::vector<Loading> all;
  ranks.together([&] {
    all = parts_of(source.index, parts, strict, checkpoint);
    for (Loading& loading : all) {
      of_part(loading, [&] {
        PEAL_CHECK(loading.local.load != nullptr,
                   "the object is const, so it can be saved but not loaded");
        loading.wanted = loading.local.want(loading.saved);
      });
    }
    const std::vector<SafetensorsFile> files = open_files(source, ranks);
    for (Loading& loading : all) of_part(loading, [&] { read_pieces(loading, files); });
    return std::string();
  });
  try_to_load(all, ranks);
  // In their order: an optimizer's masters are to be younger than its model.
  ranks.together([&] {
    for (const Loading& loading : all) {
      of_part(loading, [&] { loading.local.load(loading.pieces); });
    }
    return std::string();
  });
  return checkpoint;
}

void save_sharded(const fs::path& folder, const std::vector<Part>& parts,
                  const comm::ProcessGroup& group, const Metadata& metadata) {
  warn_of_lone_ranks();
  const Ranks ranks{group, concat("save ", folder.string())};
  Shard shard;
  int number = 0;
  ranks.together(
      [&] {
        shard = shard_of(parts, ranks, metadata);
        if (ranks.rank() == 0) number = begin_save(folder);
        return list_of(shard.index.parts);
      },
      "save the same parts on every rank");
  if (group) number = std::stoi(group.broadcast_object(std::to_string(number)));
  const fs::path mine = folder / shard_name(number, ranks.rank(), ranks.world());
  try {
    ranks.together([&] {
      write_shard(mine, shard);
      return std::string();
    });
  } catch (...) {
    remove_quietly(mine);
    throw;
  }
  // From here on an index may name the file, so only rank 0 removes any.
  std::vector<std::string> texts{to_json(shard.index)};
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
