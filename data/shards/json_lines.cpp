// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/byte_source.h>
#include <peal/data/formats/kept_index.h>
#include <peal/data/formats/open_files.h>
#include <peal/data/in_parallel.h>
#include <peal/data/rows.h>
#include <peal/data/shards/json_lines.h>
#include <peal/data/shards/line_index.h>
#include <peal/data/shards/naming.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace peal::data {

Sample made_of(const FromRecord& make, const JsonRecord& line, Draw& draw) {
  return naming(line.where(), [&] { return make(line, draw); });
}

struct JsonLines::Files {
  OpenFiles files;
  std::vector<LineIndex> lines = {};
  std::vector<std::int64_t> ends = {};  // lines up to the end of each
  FromRecord make = nullptr;
};

namespace {

std::vector<std::string> paths_of(std::vector<std::string> files) {
  PEAL_CHECK(!files.empty(), "[data] JSON lines: expected files, got none");
  for (std::string& file : files) {
    const std::string path = path_of(file).string();
    PEAL_CHECK(!path.empty(), "[data] JSON lines: '", file,
               "': expected a path or file:PATH; what else there is JsonStream reads");
    file = path;
  }
  return files;
}

}  // namespace

JsonLines::JsonLines(std::vector<std::string> files, FromRecord make, JsonLinesOptions options)
    : SampleSet(std::move(options.together)),
      files_(new Files{.files = OpenFiles(paths_of(files))}) {
  files_->make = std::move(make);
  PEAL_CHECK(files_->make, "[data] JSON lines: expected a function that makes a sample of a line");
  files_->lines.resize(files.size());
  in_parallel(std::ssize(files), options.threads, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    files_->files.look_through(at, [&](const OpenFile& file) {
      files_->lines[at] = line_index(file, options.keep_index_from);
    });
  });
  std::int64_t end = 0;
  for (const LineIndex& lines : files_->lines) files_->ends.push_back(end += lines.size());
  PEAL_CHECK(end > 0, "[data] ", files.front(), files.size() > 1 ? ", .." : "",
             ": found no line of JSON");
}

JsonLines::~JsonLines() = default;

std::int64_t JsonLines::size() const { return files_->ends.back(); }

std::vector<std::int64_t> JsonLines::sizes() const {
  std::vector<std::int64_t> sizes;
  for (const LineIndex& lines : files_->lines) sizes.push_back(lines.size());
  return sizes;
}

JsonRecord JsonLines::record(std::int64_t index) const {
  check_index("JSON lines", index, size());
  const auto which = static_cast<std::size_t>(
      std::upper_bound(files_->ends.begin(), files_->ends.end(), index) - files_->ends.begin());
  const LineIndex& lines = files_->lines[which];
  const auto line = static_cast<std::size_t>(index - (files_->ends[which] - lines.size()));
  const std::string where = concat(files_->files.path(which), ":", lines.number(line));
  const std::uint64_t begin = lines.begins[line], end = lines.end(line);
  PEAL_CHECK(end - begin <= longest_line, "[data] ", where, ": expected a line of at most ",
             longest_line, " bytes, it has ", end - begin);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(end - begin));
  PEAL_CHECK(files_->files.get(which)->read(begin, bytes) == bytes.size(), "[data] ", where,
             ": it is no longer there: the file was cut short since it was opened");
  return {std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), where};
}

Sample JsonLines::sample(std::int64_t index, Draw& draw) const {
  return made_of(files_->make, record(index), draw);
}

}  // namespace peal::data
