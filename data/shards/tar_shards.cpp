// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <peal/autograd/core/error.h>
#include <peal/data/formats/open_files.h>
#include <peal/data/in_parallel.h>
#include <peal/data/rows.h>
#include <peal/data/shards/tar_index.h>
#include <peal/data/shards/tar_shards.h>

#include <algorithm>
#include <utility>

namespace peal::data {
namespace {

// Of all of them; Error where some are no files.
std::vector<std::string> paths_there(std::vector<std::string> shards) {
  PEAL_CHECK(!shards.empty(), "[data] tar shards: expected shards, got none");
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    std::error_code none;
    if (!std::filesystem::exists(path_of(shard), none)) missing.push_back(shard);
  }
  if (missing.empty()) {
    for (std::string& shard : shards) shard = path_of(shard).string();
    return shards;
  }
  const auto shown = std::span(missing).first(std::min<std::size_t>(missing.size(), 5));
  fail(concat("[data] tar shards: ", missing.size(), " of ", shards.size(),
              " are no files here: ", fmt::format("{}", fmt::join(shown, ", ")),
              shown.size() < missing.size() ? ", .." : ""));
}

}  // namespace

struct TarShards::Shards {
  Shards(std::vector<std::string> which, Decode how)
      : paths(std::move(which)), decode(std::move(how)), files(paths) {}

  // Which shard has sample `index` of all, and its number there.
  std::pair<std::size_t, std::int64_t> find(std::int64_t index) const {
    check_index("tar shards", index, ends.back());
    const auto shard =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), index) - ends.begin());
    return {shard, index - (ends[shard] - indices[shard].samples())};
  }

  std::vector<std::string> paths;
  Decode decode;
  std::vector<TarIndex> indices;
  std::vector<std::int64_t> ends;  // samples up to the end of each
  OpenFiles files;
};

TarShards::TarShards(std::vector<std::string> shards, Decode decode, TarShardOptions options)
    : SampleSet(std::move(options.together)),
      shards_(std::make_unique<Shards>(paths_there(std::move(shards)), std::move(decode))) {
  PEAL_CHECK(shards_->decode, "[data] tar shards: expected a function that decodes a sample");
  shards_->indices.resize(shards_->paths.size());
  in_parallel(std::ssize(shards_->paths), options.threads, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    shards_->files.look_through(at, [&](const OpenFile& shard) {
      shards_->indices[at] = tar_index(shard, options.keep_index);
    });
  });
  std::int64_t end = 0;
  for (const TarIndex& index : shards_->indices) shards_->ends.push_back(end += index.samples());
  PEAL_CHECK(end > 0, "[data] ", shards_->paths.front(), shards_->paths.size() > 1 ? ", .." : "",
             ": found no sample: files of names like 'dogs/1.jpg', 'dogs/1.cls'");
}

TarShards::~TarShards() = default;

std::int64_t TarShards::size() const { return shards_->ends.back(); }
const std::vector<std::string>& TarShards::shards() const { return shards_->paths; }

std::vector<std::int64_t> TarShards::sizes() const {
  std::vector<std::int64_t> sizes;
  for (const TarIndex& index : shards_->indices) sizes.push_back(index.samples());
  return sizes;
}

std::shared_ptr<ShardSampler> TarShards::sampler(Place place,
                                                 const ShardSamplerOptions& options) const {
  return std::make_shared<ShardSampler>(sizes(), place, options);
}

std::string TarShards::name(std::int64_t index) const {
  const auto [shard, sample] = shards_->find(index);
  return TarSample{shards_->paths[shard], std::string(shards_->indices[shard].stem(sample))}.name();
}

TarSample TarShards::files(std::int64_t index) const {
  const auto [shard, sample] = shards_->find(index);
  const TarIndex& where = shards_->indices[shard];
  TarSample found{shards_->paths[shard], std::string(where.stem(sample))};
  const auto first = where.first[static_cast<std::size_t>(sample)],
             end = where.first[static_cast<std::size_t>(sample) + 1];
  // With the headers between them, in one go.
  const std::uint64_t begin = where.at[first], stop = where.at[end - 1] + where.size[end - 1];
  found.bytes.resize(static_cast<std::size_t>(stop - begin));
  const std::size_t got = shards_->files.get(shard)->read(begin, found.bytes);
  PEAL_CHECK(got == found.bytes.size(), "[data] ", found.name(), ": expected bytes ", begin, " to ",
             stop, ", the file ends at ", begin + got,
             "; it was cut short since its headers were read: copy or download it again");
  for (std::uint64_t i = first; i < end; ++i) {
    found.files.push_back({where.suffixes[where.suffix[i]],
                           static_cast<std::size_t>(where.at[i] - begin),
                           static_cast<std::size_t>(where.size[i])});
  }
  return found;
}

Sample TarShards::sample(std::int64_t index, Draw& draw) const {
  return decoded(shards_->decode, files(index), draw);
}

}  // namespace peal::data
