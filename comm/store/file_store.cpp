// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/store/file_store.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

namespace peal::comm {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view format = "peal-store-1";

std::string new_session() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

std::optional<std::string> read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return std::nullopt;
  return text;
}

void write(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace

FileStore::FileStore(fs::path folder, int rank, int world, Patience patience)
    : folder_(std::move(folder)),
      rank_(rank),
      world_(world),
      patience_(std::move(patience)),
      sessions_(static_cast<std::size_t>(world), "-") {
  PEAL_CHECK(rank >= 0 && rank < world, "[store] rank ", rank, " of a world of ", world);
  std::error_code problem;
  fs::create_directories(folder_, problem);
  PEAL_CHECK(fs::is_directory(folder_), "[store] rank ", rank_, ": the folder ", folder_.string(),
             " cannot be made: ", problem ? problem.message() : "a file stands there");
  sessions_[static_cast<std::size_t>(rank_)] = new_session();
  show();
}

fs::path FileStore::presence(int rank) const { return folder_ / concat(format, ".", rank); }

fs::path FileStore::text_of(int rank) const {
  return folder_ /
         concat(format, ".", rank, ".", sessions_[static_cast<std::size_t>(rank)], ".", number_);
}

// "peal-store-1 WORLD RANK SESSION", and the sessions of all.
void FileStore::show() const {
  std::string text =
      concat(format, " ", world_, " ", rank_, " ", sessions_[static_cast<std::size_t>(rank_)]);
  for (const std::string& session : sessions_) text += " " + session;
  write(presence(rank_), text);
}

// Whether the rank has seen this one, and so is of this run.
bool FileStore::see(int rank) {
  std::istringstream words(read(presence(rank)).value_or(""));
  std::string kind, session, known;
  int world = 0, who = -1;
  words >> kind >> world >> who >> session;
  if (!words || kind != format || who != rank) return false;  // not there, or a stranger's
  std::string& seen = sessions_[static_cast<std::size_t>(rank)];
  if (seen != session) {
    seen = session;
    show();
  }
  for (int r = 0; r <= rank_ && r < world; ++r) words >> known;
  if (!words || known != sessions_[static_cast<std::size_t>(rank_)]) return false;
  PEAL_CHECK(world == world_, "[store] rank ", rank_, " of ", world_, " met rank ", rank, " of ",
             world, " in ", folder_.string(), ": start all ranks with one world");
  return true;
}

void FileStore::wait_for_all(const char* what, const std::function<bool(int rank)>& there) const {
  const auto start = Clock::now();
  std::chrono::microseconds nap{200};
  std::vector<int> missing;
  for (int r = 0; r < world_; ++r) {
    if (r != rank_) missing.push_back(r);
  }
  for (;;) {
    std::erase_if(missing, there);
    if (missing.empty()) return;
    patience_.hopeless();
    std::string names;
    for (const int r : missing) names += concat(names.empty() ? "" : ", ", r);
    PEAL_CHECK(Clock::now() - start < patience_.deadline, "[store] rank ", rank_, " of ", world_,
               " waited ", std::chrono::duration<double>(patience_.deadline).count(),
               " s (PEAL_TIMEOUT) for rank ", names, what, folder_.string(),
               ": not running, or it sees another folder under this name");
    std::this_thread::sleep_for(nap);
    nap = std::min<std::chrono::microseconds>(2 * nap, std::chrono::milliseconds(50));
  }
}

void FileStore::meet() {
  const std::string& mine = sessions_[static_cast<std::size_t>(rank_)];
  wait_for_all(" to come to ", [&](int r) {
    const auto shown = read(presence(rank_));
    PEAL_CHECK(!shown || shown->find(mine) != std::string::npos, "[store] rank ", rank_,
               ": another process is rank ", rank_, " in ", folder_.string(),
               ": give every job a folder of its own, and every process a rank");
    return see(r);
  });
  met_ = true;
}

// Whoever sees that all have read removes the files.
void FileStore::clean_up() const {
  std::error_code ignored;
  const auto mark = [&](int rank) { return fs::path(text_of(rank).string() + ".read"); };
  std::ofstream(mark(rank_)).flush();
  for (int r = 0; r < world_; ++r) {
    if (!fs::exists(mark(r), ignored)) return;
  }
  for (int r = 0; r < world_; ++r) {
    fs::remove(text_of(r), ignored);
    fs::remove(mark(r), ignored);
  }
}

std::vector<std::string> FileStore::exchange(const std::string& mine) {
  PEAL_CHECK(mine.size() <= most_store_bytes, "[store] rank ", rank_, ": a text of ", mine.size(),
             " bytes; expected at most ", most_store_bytes);
  if (!met_) meet();
  write(text_of(rank_), mine);
  std::vector<std::string> all(static_cast<std::size_t>(world_));
  all[static_cast<std::size_t>(rank_)] = mine;
  wait_for_all(" to leave a text in ", [&](int r) {
    auto text = read(text_of(r));
    if (text) all[static_cast<std::size_t>(r)] = std::move(*text);
    return text.has_value();
  });
  clean_up();
  // All have met: nobody looks for it any more.
  std::error_code ignored;
  if (number_++ == 0) fs::remove(presence(rank_), ignored);
  return all;
}

}  // namespace peal::comm
