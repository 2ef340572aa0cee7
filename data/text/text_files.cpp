// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/data/formats/csv.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/formats/tar.h>
#include <peal/data/text/text_files.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

namespace peal::data {
namespace {

namespace fs = std::filesystem;

bool is_text_file(const fs::path& path) { return path.extension() == ".txt"; }

// What is below a folder or in an archive, by where it lies there.
struct Found {
  std::map<std::string, std::string> texts;  // by path, with slashes
  std::set<std::string> folders;             // the first ones of those paths, and empty ones
};

std::string text_of(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

Found found_in_folder(const fs::path& root) {
  Found found;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) found.folders.insert(entry.path().filename().string());
  }
  constexpr auto follow = fs::directory_options::follow_directory_symlink;
  for (const auto& entry : fs::recursive_directory_iterator(root, follow)) {
    if (!is_text_file(entry.path()) || !entry.is_regular_file()) continue;
    found.texts[entry.path().lexically_relative(root).generic_string()] =
        text_of(read_file(entry.path()));
  }
  return found;
}

Found found_in_archive(const fs::path& archive, const std::string& part) {
  const std::vector<std::uint8_t> packed = read_file(archive);
  TarReader reader(packed, archive.string());
  Found found;
  while (const auto entry = reader.next()) {
    const fs::path path = fs::path(entry->name).lexically_normal();
    const fs::path inside = part.empty() ? path : path.lexically_relative(part);
    const std::string first = inside.empty() ? "." : inside.begin()->string();
    if (first == ".." || first == ".") continue;
    const bool folder = entry->kind == TarEntry::folder;
    if (folder || std::next(inside.begin()) != inside.end()) found.folders.insert(first);
    if (folder || !is_text_file(inside)) continue;
    PEAL_CHECK(entry->kind == TarEntry::file, "[data] ", archive.string(), ": ", entry->name,
               ": expected a file, got a link to '", entry->target,
               "'; unpack the archive, and name its folder");
    std::vector<std::uint8_t> content;
    reader.read(content);
    found.texts[inside.generic_string()] = text_of(content);
  }
  return found;
}

// Where there are folders each is a class, and what lies beside them is none.
TextFiles texts_by_folder(const std::string& name, const std::string& before, Found found) {
  TextFiles all{name, {}, {}, {}};
  std::set<std::string> without = found.folders;
  std::int64_t beside = 0;
  for (auto& [path, text] : found.texts) {
    const std::size_t slash = path.find('/');
    if (!found.folders.empty()) {
      if (slash == path.npos) {
        ++beside;
        continue;
      }
      all.labels.push_back(path.substr(0, slash));
      without.erase(all.labels.back());
    }
    all.sources.push_back(before + path);
    all.texts.push_back(std::move(text));
  }
  PEAL_CHECK(without.empty(), "[data] ", name, ": found no .txt file in ",
             fmt::format("{}", fmt::join(without, ", ")));
  PEAL_CHECK(all.size() > 0, "[data] ", name, ": found no .txt file in it or below");
  if (beside > 0) {
    log_warning("[data] ", name, ": ", beside,
                " texts lie beside the folders of classes, and are left out");
  }
  return all;
}

TextFiles texts_of_csv(const fs::path& path, const TextColumns& columns) {
  const Csv csv = read_csv(path);
  const auto column = [&](const std::string& name) {
    const auto at = std::find(csv.names().begin(), csv.names().end(), name);
    return at == csv.names().end() ? -1 : at - csv.names().begin();
  };
  const auto text = column(columns.text), label = column(columns.label);
  PEAL_CHECK(text >= 0, "[data] ", csv.name(), ": expected a column '", columns.text,
             "' of texts, got the columns ", fmt::format("{}", fmt::join(csv.names(), ", ")));
  TextFiles all{csv.name(), {}, {}, {}};
  for (std::int64_t row = 0; row < csv.rows(); ++row) {
    all.sources.push_back(concat(csv.name(), ", line ", csv.line(row)));
    all.texts.emplace_back(csv.cell(row, text));
    if (label < 0) continue;
    all.labels.emplace_back(csv.cell(row, label));
    PEAL_CHECK(!all.labels.back().empty(), "[data] ", all.sources.back(), ": expected a class in '",
               columns.label, "', got an empty cell");
  }
  PEAL_CHECK(all.size() > 0, "[data] ", csv.name(), ": there is no text in it");
  return all;
}

bool is_csv(const fs::path& path) {
  std::string name = path.filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.ends_with(".csv") || name.ends_with(".csv.gz");
}

bool is_archive(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".tar") || name.ends_with(".tar.gz") || name.ends_with(".tgz");
}

}  // namespace

std::vector<std::string> TextFiles::classes() const {
  PEAL_CHECK(labels.size() == texts.size(), "[data] ", name,
             ": expected texts with classes (a folder for each, or a column), got none");
  const std::set<std::string> all(labels.begin(), labels.end());
  return {all.begin(), all.end()};
}

std::vector<std::int64_t> TextFiles::class_numbers(const std::vector<std::string>& classes) const {
  static_cast<void>(this->classes());  // which refuses texts without
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto at = std::find(classes.begin(), classes.end(), labels[i]);
    PEAL_CHECK(at != classes.end(), "[data] ", sources[i], ": '", labels[i],
               "' is no class of the set: it knows ", fmt::format("{}", fmt::join(classes, ", ")));
    numbers.push_back(at - classes.begin());
  }
  return numbers;
}

TextFiles read_texts(const fs::path& path, const std::string& part, const TextColumns& columns) {
  PEAL_CHECK(fs::exists(path), "[data] ", path.string(),
             ": no such text, folder, archive or CSV file of texts");
  if (fs::is_directory(path)) {
    if (!part.empty() && fs::exists(path / (part + ".csv"))) {
      return texts_of_csv(path / (part + ".csv"), columns);
    }
    const fs::path root = part.empty() ? path : path / part;
    PEAL_CHECK(fs::is_directory(root), "[data] ", root.string(), ": no such folder of texts, nor ",
               root.string(), ".csv");
    return texts_by_folder(root.string(), (root / "").string(), found_in_folder(root));
  }
  if (is_archive(path)) {
    const std::string name = path.string();
    return texts_by_folder(part.empty() ? name : concat(name, " (", part, ")"), name + ": ",
                           found_in_archive(path, part));
  }
  PEAL_CHECK(part.empty(), "[data] ", path.string(), ": expected a folder or archive with ", part,
             "/ or ", part, ".csv in it, got a file");
  if (is_csv(path)) return texts_of_csv(path, columns);
  std::string text = text_of(read_file(path));
  PEAL_CHECK(!text.starts_with("\x1f\x8b"), "[data] ", path.string(),
             ": expected a text, got gzip; unpack it");
  PEAL_CHECK(text.find('\0') == text.npos, "[data] ", path.string(),
             ": expected a text, a folder of .txt files, an archive (.tar, .tar.gz) or a CSV file "
             "(.csv, .csv.gz), got a file with zero bytes in it");
  return {path.string(), {std::move(text)}, {path.string()}, {}};
}

}  // namespace peal::data
