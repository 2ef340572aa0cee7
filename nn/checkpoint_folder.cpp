// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/checkpoint_folder.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace peal::nn {
namespace {

// N of checkpoint-N-step-S.safetensors; nothing for another name.
std::optional<std::int64_t> number_of(std::string_view name) {
  std::int64_t number = 0, step = 0;
  const auto takes = [&](std::string_view text) {
    const bool right = name.starts_with(text);
    if (right) name.remove_prefix(text.size());
    return right;
  };
  const auto takes_number = [&](std::int64_t& value) {
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    const bool right = error == std::errc() && value >= 0;
    if (right) name.remove_prefix(static_cast<std::size_t>(end - name.data()));
    return right;
  };
  const bool is_one = takes("checkpoint-") && takes_number(number) && takes("-step-") &&
                      takes_number(step) && name == ".safetensors";
  return is_one ? std::optional(number) : std::nullopt;
}

// The number that is called so; nothing where there is none, or another one.
std::optional<double> measure_in(const Metadata& metadata, std::string_view name) {
  const auto text = metadata.find(measure_key);
  if (text == metadata.end()) return std::nullopt;
  double measure = 0;
  const char* const end = text->second.data() + text->second.size();
  const auto [stop, error] = std::from_chars(text->second.data(), end, measure);
  const bool is_one = error == std::errc() && std::string_view(stop, end) == concat(" ", name) &&
                      !std::isnan(measure);
  return is_one ? std::optional(measure) : std::nullopt;
}

// Empty where the file is whole, or why it is not. UnreadableFile where that cannot be told.
std::string fault_of(const std::filesystem::path& path, Metadata* metadata = nullptr) {
  try {
    const CheckpointFile file(path);
    if (metadata != nullptr) *metadata = file.metadata();
    if (file.checksum().empty())
      return concat("load ", path.string(), ": it has no checksum that could say it is whole");
    return {};
  } catch (const UnreadableFile&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw UnreadableFile(concat("load ", path.string(), ": there is no memory left for it"));
  } catch (const std::exception& error) {
    return error.what();
  }
}

// With the folders above that are missing; each entry is on the disk before a checkpoint is.
void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> missing;
  std::filesystem::path at = (std::filesystem::absolute(folder, error) / "").parent_path();
  for (; !error && !std::filesystem::exists(at, error) && at.has_relative_path();
       at = at.parent_path()) {
    missing.push_back(at);
  }
  std::filesystem::create_directories(folder, error);
  PEAL_CHECK(!error && std::filesystem::is_directory(folder, error), "save ", folder.string(),
             ": cannot make the folder: ", error.message(), "; make it, or save elsewhere");
  for (const auto& made : missing) flush_folder(made.parent_path());
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::filesystem::path folder, int keep, std::string best)
    : folder_(std::move(folder)), keep_(keep), best_(std::move(best)) {
  PEAL_CHECK(keep >= 1, "checkpoints in ", folder_.string(),
             ": expected to keep at least 1 of them, got ", keep);
}

std::vector<std::filesystem::path> CheckpointFolder::files() const {
  std::vector<std::pair<std::int64_t, std::filesystem::path>> numbered;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder_, error), end;
  for (; !error && entries != end; entries.increment(error)) {
    if (const auto number = number_of(entries->path().filename().string()))
      numbered.emplace_back(*number, entries->path());
  }
  PEAL_CHECK(!error || error == std::errc::no_such_file_or_directory, "checkpoints in ",
             folder_.string(), ": cannot read the folder: ", error.message());
  std::sort(numbered.begin(), numbered.end(), std::greater<>());
  std::vector<std::filesystem::path> files;
  for (auto& [number, path] : numbered) files.push_back(std::move(path));
  return files;
}

std::optional<std::filesystem::path> CheckpointFolder::latest() const {
  const auto all = files();
  std::string faults;
  for (const auto& path : all) {
    std::string fault;
    try {
      fault = fault_of(path);
    } catch (const UnreadableFile& error) {
      fail(concat("checkpoints in ", folder_.string(),
                  ": whether the newest of them is whole cannot be told: ", error.what(),
                  "; let this process read it, or move it away to go on from an older one"));
    }
    if (fault.empty()) return path;
    log_warning("a checkpoint is passed over, for it is not whole: ", fault);
    faults += "\n  " + fault;
  }
  PEAL_CHECK(all.empty(), "checkpoints in ", folder_.string(), ": none of the ", all.size(),
             " is whole; bring one back, or begin anew in another folder:", faults);
  return std::nullopt;
}

std::filesystem::path CheckpointFolder::next(std::int64_t step) const {
  make_folder(folder_);
  const auto all = files();
  const std::int64_t last = all.empty() ? 0 : number_of(all[0].filename().string()).value();
  return folder_ / concat("checkpoint-", last + 1, "-step-", step, ".safetensors");
}

// A file is read once: those of a running program are written by it, and it knows them.
const CheckpointFolder::Found& CheckpointFolder::look(const std::filesystem::path& path) {
  std::error_code error;
  Found now{.size = std::filesystem::file_size(path, error),
            .written = std::filesystem::last_write_time(path, error)};
  const auto before = found_.find(path);
  if (before != found_.end() && before->second.size == now.size &&
      before->second.written == now.written) {
    return before->second;
  }
  try {
    Metadata metadata;
    const std::string fault = fault_of(path, &metadata);
    now.whole = fault.empty();
    now.measure = measure_in(metadata, best_);
    if (!now.whole)
      log_warning("a checkpoint does not count as kept, for it is not whole: ", fault);
  } catch (const UnreadableFile& error) {
    now.unread = true;
    log_warning("a checkpoint does not count as kept, for whether it is whole cannot be told now: ",
                error.what());
  }
  return found_[path] = now;
}

std::optional<std::filesystem::path> CheckpointFolder::best() {
  std::optional<std::filesystem::path> best;
  double highest = 0;
  for (const auto& path : files()) {
    const Found& found = look(path);
    if (!found.whole || !found.measure || (best && *found.measure <= highest)) continue;
    best = path;
    highest = *found.measure;
  }
  return best;
}

void CheckpointFolder::remove_old(bool alone, std::optional<double> measure) {
  const auto all = files();
  if (!all.empty()) {  // just written
    std::error_code error;
    found_[all.front()] = {.size = std::filesystem::file_size(all.front(), error),
                           .written = std::filesystem::last_write_time(all.front(), error),
                           .whole = true,
                           .measure = measure};
  }
  const auto stays = best_.empty() ? std::nullopt : best();
  int kept = 0;
  for (const auto& path : all) {
    std::error_code error;
    if (kept == keep_) {
      if (path == stays || (!best_.empty() && look(path).unread)) continue;  // it may be the best
      found_.erase(path);
      if (!std::filesystem::remove(path, error) && error)
        log_warning("cannot remove the old checkpoint ", path.string(), ": ", error.message());
      continue;
    }
    kept += look(path).whole;
  }
  std::erase_if(found_, [](const auto& entry) { return entry.second.unread; });  // another try
  remove_stale_temporaries(
      folder_, [](std::string_view name) { return number_of(name).has_value(); }, alone);
}

bool CheckpointFolder::is_file_of_one(const std::filesystem::path& path) {
  return number_of(path.filename().string()).has_value();
}

}  // namespace peal::nn
