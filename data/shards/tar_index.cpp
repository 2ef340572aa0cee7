// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/kept_index.h>
#include <peal/data/formats/tar.h>
#include <peal/data/shards/tar_index.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <utility>

namespace peal::data {
namespace {

constexpr std::string_view kind_of_tar = "tar    2";

// WebDataset's __[^/]*__($|/) at the begin of a name.
bool is_meta(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('/'));
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

void put_words(std::string& to, const std::vector<std::uint64_t>& words) {
  to.append(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(std::uint64_t));
}

// Takes them from the front; false where there are not as many.
bool take_words(std::string_view& from, std::uint64_t count, std::vector<std::uint64_t>& to) {
  if (count > from.size() / sizeof(std::uint64_t)) return false;
  to.resize(static_cast<std::size_t>(count));
  const std::size_t bytes = to.size() * sizeof(std::uint64_t);
  if (bytes > 0) std::memcpy(to.data(), from.data(), bytes);
  from.remove_prefix(bytes);
  return true;
}

bool ascends(const std::vector<std::uint64_t>& words, std::uint64_t last) {
  return std::is_sorted(words.begin(), words.end()) && (words.empty() ? 0 : words.back()) == last;
}

}  // namespace

std::optional<StemAndSuffix> stem_and_suffix(const std::string& name) {
  if (is_meta(name)) return std::nullopt;
  const std::size_t base = name.rfind('/') + 1;  // npos + 1 is 0
  const std::size_t dot = name.find('.', base);
  if (dot == std::string::npos || dot == base) return std::nullopt;
  StemAndSuffix found{name.substr(0, dot), name.substr(dot + 1)};
  for (char& c : found.suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return found;
}

void check_no_link(const TarEntry& entry, const std::string& archive) {
  PEAL_CHECK(entry.kind != TarEntry::link, "[data] ", archive, ": ", entry.name,
             ": expected a file, got a link to '", entry.target,
             "'; pack the shard with --hard-dereference, which puts the file itself there");
}

std::string_view TarIndex::stem(std::int64_t sample) const {
  const auto i = static_cast<std::size_t>(sample);
  const std::uint64_t begin = i == 0 ? 0 : stem_ends[i - 1];
  return std::string_view(stems).substr(begin, stem_ends[i] - begin);
}

std::string TarIndex::to_bytes() const {
  std::string names;
  std::vector<std::uint64_t> name_ends;
  for (const std::string& each : suffixes) name_ends.push_back((names += each).size());
  std::string bytes;
  put_words(bytes, {stem_ends.size(), at.size(), suffixes.size(), stems.size(), names.size()});
  for (const auto* words : {&first, &at, &size, &suffix, &stem_ends, &std::as_const(name_ends)}) {
    put_words(bytes, *words);
  }
  return bytes + stems + names;
}

std::optional<TarIndex> TarIndex::from_bytes(std::string_view bytes, std::uint64_t file_size) {
  TarIndex index;
  std::vector<std::uint64_t> counts, name_ends;
  if (!take_words(bytes, 5, counts)) return std::nullopt;
  const std::uint64_t samples = counts[0], files = counts[1];
  if (samples > bytes.size() || !take_words(bytes, samples + 1, index.first) ||
      !take_words(bytes, files, index.at) || !take_words(bytes, files, index.size) ||
      !take_words(bytes, files, index.suffix) || !take_words(bytes, samples, index.stem_ends) ||
      !take_words(bytes, counts[2], name_ends)) {
    return std::nullopt;
  }
  if (counts[3] > bytes.size() || bytes.size() - counts[3] != counts[4]) return std::nullopt;
  index.stems = bytes.substr(0, counts[3]);
  bytes.remove_prefix(counts[3]);
  const auto no_file = std::adjacent_find(index.first.begin(), index.first.end());
  if (index.first.front() != 0 || !ascends(index.first, files) || no_file != index.first.end() ||
      !ascends(index.stem_ends, counts[3]) || !ascends(name_ends, counts[4])) {
    return std::nullopt;
  }
  for (std::uint64_t i = 0; i < files; ++i) {
    const std::uint64_t before = i == 0 ? 0 : index.at[i - 1] + index.size[i - 1];
    if (index.suffix[i] >= counts[2] || index.at[i] > file_size || index.at[i] < before ||
        index.size[i] > file_size - index.at[i]) {
      return std::nullopt;
    }
  }
  std::uint64_t begin = 0;
  for (const std::uint64_t end : name_ends) {
    index.suffixes.emplace_back(bytes.substr(begin, end - begin));
    begin = end;
  }
  return index;
}

TarIndex index_tar(std::unique_ptr<ByteSource> archive, const std::string& name) {
  TarReader reader(std::move(archive), name);
  PEAL_CHECK(!reader.packed(), "[data] ", name,
             ": its samples cannot be found by their places, as it is gzip; unpack it, or read it "
             "as a stream (TarStream)");
  TarIndex index;
  std::map<std::string, std::uint64_t> numbers;  // of suffixes
  std::string last;                              // stem
  while (const auto entry = reader.next()) {
    const auto parts = stem_and_suffix(entry->name);
    if (entry->kind == TarEntry::folder || !parts) continue;
    check_no_link(*entry, name);
    if (index.first.empty() || parts->stem != last) {
      index.first.push_back(index.at.size());
      index.stems += parts->stem;
      index.stem_ends.push_back(index.stems.size());
      last = parts->stem;
    }
    const auto [suffix, fresh] = numbers.try_emplace(parts->suffix, numbers.size());
    if (fresh) index.suffixes.push_back(parts->suffix);
    for (std::size_t i = index.first.back(); i < index.at.size(); ++i) {
      PEAL_CHECK(index.suffix[i] != suffix->second, "[data] ", name, ": sample '", last,
                 "' has two files '", parts->suffix,
                 "'; files that follow one another and have one stem are a sample");
    }
    index.at.push_back(reader.content_at());
    index.size.push_back(entry->size);
    index.suffix.push_back(suffix->second);
  }
  index.first.push_back(index.at.size());
  reader.warn_of_links();
  return index;
}

TarIndex tar_index(const OpenFile& shard, bool keep) {
  const auto find_out = [&] { return index_tar(file_bytes(shard.name()), shard.name()); };
  if (!keep) return find_out();
  std::optional<TarIndex> index;
  const std::uint64_t size = shard.stamp().size;
  kept_index(
      shard, kind_of_tar,
      [&] {
        index = find_out();
        return index->to_bytes();
      },
      [&](std::string_view bytes) {
        index = TarIndex::from_bytes(bytes, size);
        return index.has_value();
      });
  return std::move(*index);
}

}  // namespace peal::data
