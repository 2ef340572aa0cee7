// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/nn/parallel/sharded/checkpoint_index.h>
#include <peal/nn/parallel/sharded/checkpoint_ranks.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>

#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace peal::nn {

namespace {

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
  std::filesystem::path folder;
  CheckpointIndex index;
};

Source source_of(const std::filesystem::path& path) {
  if (std::filesystem::is_regular_file(path)) return {path.parent_path(), index_of_file(path)};
  const std::filesystem::path file = path / sharded_index_name;
  PEAL_CHECK(std::filesystem::exists(file), file.string(),
             ": there is none, so this is no folder of a sharded checkpoint, or its first save was "
             "not finished");
  return {path, index_of_json(checkpointed::text_of(file), file.string())};
}

std::vector<Loading> parts_of(const CheckpointIndex& index, const std::vector<Part>& parts,
                              bool strict, Checkpoint& checkpoint) {
  checkpointed::check_names(parts, {});
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
             "its parts are ", checkpointed::list_of(index.parts),
             "; missing: ", checkpointed::list_of(checkpoint.missing_parts),
             "; not asked for: ", checkpointed::list_of(checkpoint.unexpected_parts),
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

// A part of a run that this rank wants: where it begins in the run, and where it belongs.
struct Wanted {
  const Loading* loading;
  const CheckpointIndex::Run* run;
  std::int64_t from;
  Tensor into;
};

// By file.
std::vector<std::vector<Wanted>> wanted_of(const std::vector<Loading>& all, std::size_t files) {
  std::vector<std::vector<Wanted>> wanted(files);
  for (const Loading& loading : all) {
    std::size_t next = 0;
    for (std::size_t i = 0; i < loading.saved.size(); ++i) {
      if (!loading.wanted[i]) continue;
      const auto [begin, count] = *loading.wanted[i];
      const Tensor piece = loading.pieces[next++].second.detach({count});
      for (const auto& run : loading.entries[i]->runs) {
        const std::int64_t from = std::max(begin, run.begin);
        const std::int64_t end = std::min(begin + count, run.end);
        if (from >= end) continue;
        wanted[run.file].push_back(
            {&loading, &run, from - run.begin, piece.detach({end - from}, from - begin)});
      }
    }
  }
  return wanted;
}

// `looks`: at all of its bytes, and not at its header alone.
SafetensorsFile open_file(const Source& source, const CheckpointIndex::File& expected, bool looks) {
  SafetensorsFile file(source.folder / expected.name);
  PEAL_CHECK(file.bytes() == expected.bytes && file.checksum() == expected.checksum, expected.name,
             ": the index has ", expected.bytes, " bytes with the checksum ", expected.checksum,
             ", and the file ", file.bytes(), " with ", file.checksum(),
             ": it is another one, or was cut short; copy the whole folder again");
  if (looks) file.check();
  return file;
}

std::string bits(const std::vector<bool>& all) {
  std::string text;
  for (const bool each : all) text += each ? '1' : '0';
  return text;
}

// The files that this rank opens: those that it reads from, and its share of all, for some may be
// read by nobody.
std::vector<bool> opened_files(const std::vector<std::vector<Wanted>>& wanted,
                               const checkpointed::Ranks& ranks) {
  const auto world = static_cast<std::size_t>(ranks.world());
  std::vector<bool> opened(wanted.size());
  for (std::size_t f = 0; f < opened.size(); ++f) {
    opened[f] = !wanted[f].empty() || f % world == static_cast<std::size_t>(ranks.rank());
  }
  return opened;
}

// Of each file that a rank opens all bytes are looked at, for its copy may be another than the
// other ranks'. Those of one node that see the same folder see the same copy: one of them does it,
// as of a file that all read from (rank 0's, with what is alike on all ranks) each would read all.
// The files at whose bytes this rank looks. Collective.
std::vector<bool> looked_at(const std::vector<bool>& opened, const Source& source,
                            const checkpointed::Ranks& ranks) {
  if (!ranks.group) return opened;
  struct stat folder {};
  std::string mine = concat(ranks.group.nodes().node[static_cast<std::size_t>(ranks.rank())]);
  const bool is_known = ::stat(source.folder.empty() ? "." : source.folder.c_str(), &folder) == 0;
  mine += is_known ? concat(" ", folder.st_dev, " ", folder.st_ino) : concat("r", ranks.rank());
  mine += '\n';
  const auto said = ranks.group.all_gather_object(mine + bits(opened));
  std::vector<int> same;  // who see it there
  for (int rank = 0; rank < ranks.world(); ++rank) {
    if (said[static_cast<std::size_t>(rank)].starts_with(mine)) same.push_back(rank);
  }
  std::vector<bool> looks(opened.size());
  for (std::size_t f = 0; f < opened.size(); ++f) {
    if (!opened[f]) continue;
    std::vector<int> among;  // who open it as well
    for (const int rank : same) {
      if (said[static_cast<std::size_t>(rank)][mine.size() + f] == '1') among.push_back(rank);
    }
    looks[f] = among[f % among.size()] == ranks.rank();
  }
  return looks;
}

void make_pieces(std::vector<Loading>& all) {
  for (Loading& loading : all) {
    for (std::size_t i = 0; i < loading.saved.size(); ++i) {
      if (!loading.wanted[i]) continue;
      const SavedTensor& saved = loading.saved[i];
      const std::int64_t count = loading.wanted[i]->count;
      const Shape shape = count == saved.shape.numel() ? saved.shape : Shape{count};
      loading.pieces.emplace_back(saved.name, Tensor::empty(shape, saved.dtype, Device{}));
    }
  }
}

// One file after the other, as there may be more than a process may have open.
void read_pieces(const std::vector<std::vector<Wanted>>& wanted, const Source& source,
                 const std::vector<bool>& opened, const std::vector<bool>& looks) {
  for (std::size_t f = 0; f < opened.size(); ++f) {
    if (!opened[f]) continue;
    const SafetensorsFile file = open_file(source, source.index.files[f], looks[f]);
    for (const auto& [loading, run, from, into] : wanted[f]) {
      of_part(*loading,
              [&, run = run, from = from, &into = into] { file.read(run->tensor, from, into); });
    }
  }
}

// Takes back what was loaded. What cannot be stays: the Error on its way says what led there.
void take_back(const std::vector<Loading*>& changed) {
  for (std::size_t i = changed.size(); i-- > 0;) {
    try {
      changed[i]->local.load(changed[i]->before);
    } catch (const std::exception& error) {
      log_warning("part '", changed[i]->part->name(),
                  "' keeps what was loaded into it: ", error.what());
    }
  }
}

// What can still go wrong comes first, and is taken back where a rank has found something. One part
// after the other on all ranks, as loading one may be collective.
void load_unchecked(std::vector<Loading>& all, const checkpointed::Ranks& ranks) {
  std::vector<Loading*> changed;
  try {
    for (Loading& loading : all) {
      if (loading.local.checked) continue;
      ranks.together([&] {
        of_part(loading, [&] {
          for (const LocalTensor& local : loading.local.save()) {
            loading.before.emplace_back(
                local.key, loading.local.replaces ? local.elements : local.elements.clone());
          }
          loading.local.load(loading.pieces);
          changed.push_back(&loading);
        });
        return std::string();
      });
    }
  } catch (...) {
    take_back(changed);
    throw;
  }
}

}  // namespace

Checkpoint load_sharded(const std::filesystem::path& folder, const std::vector<Part>& parts,
                        const comm::ProcessGroup& group, bool strict) {
  const checkpointed::Ranks ranks{group, concat("load ", folder.string())};
  Source source;
  ranks.together(
      [&] {
        source = source_of(folder);
        check_covered(source.index, "its index");
        return source.index.checksum.empty() ? to_json(source.index) : source.index.checksum;
      },
      "these are two checkpoints; let all ranks see one folder, or copy one to all");
  Checkpoint checkpoint;
  std::vector<Loading> all;
  std::vector<std::vector<Wanted>> wanted;
  std::vector<bool> opened;
  ranks.together([&] {
    all = parts_of(source.index, parts, strict, checkpoint);
    for (Loading& loading : all) {
      of_part(loading, [&] {
        PEAL_CHECK(loading.local.load != nullptr,
                   "the object is const, so it can be saved but not loaded");
        loading.wanted = loading.local.want(loading.saved);
      });
    }
    make_pieces(all);
    wanted = wanted_of(all, source.index.files.size());
    opened = opened_files(wanted, ranks);
    return std::string();
  });
  const std::vector<bool> looks = looked_at(opened, source, ranks);
  ranks.together([&] {
    read_pieces(wanted, source, opened, looks);
    return std::string();
  });
  load_unchecked(all, ranks);
  ranks.together([&] {
    for (const Loading& loading : all) {
      if (!loading.local.checked) continue;
      of_part(loading, [&] { loading.local.load(loading.pieces); });
    }
    return std::string();
  });
  return checkpoint;
}

}  // namespace peal::nn
