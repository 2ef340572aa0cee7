// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/store/connection.h>
#include <peal/comm/store/file_store.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

namespace peal::comm {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view format = "peal-store-2";
constexpr std::size_t longest_key = 150;  // bytes of a file's name

std::optional<std::string> read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return std::nullopt;
  return text;
}

// One that numbers are added to is locked for as long as it is written.
std::optional<std::string> read_value(const fs::path& path) {
  const Socket file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  flock(file.get(), LOCK_SH);  // where files cannot be locked, there are no numbers
  std::string text;
  char part[4096];
  for (ssize_t got = 1; got != 0; text.append(part, static_cast<std::size_t>(got))) {
    got = ::read(file.get(), part, sizeof part);
    if (got < 0) return std::nullopt;
  }
  return text;
}

void write(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace

FileStore::FileStore(fs::path folder, int rank, int world, Patience patience)
    : folder_(std::move(folder)), rank_(rank), world_(world), patience_(std::move(patience)) {
  PEAL_CHECK(rank >= 0 && rank < world, "[store] rank ", rank, " of a world of ", world);
  std::error_code problem;
  fs::create_directories(folder_, problem);
  PEAL_CHECK(fs::is_directory(folder_), "[store] rank ", rank_, ": the folder ", folder_.string(),
             " cannot be made: ", problem ? problem.message() : "a file stands there");
  std::random_device random;
  session_ = fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
  show("-");
}

FileStore::~FileStore() {
  if (mark_.inherited()) return;
  std::error_code ignored;
  if (root_.empty() && read(presence(rank_)).value_or("").find(session_) != std::string::npos) {
    fs::remove(presence(rank_), ignored);
  }
  if (rank_ != 0 || root_.empty()) return;
  // Once all have met, nobody looks for the list.
  for (int r = 1; r < world_; ++r) {
    if (fs::exists(presence(r), ignored)) return;
  }
  fs::remove(list(), ignored);
}

fs::path FileStore::presence(int rank) const { return folder_ / concat(format, ".", rank); }
fs::path FileStore::list() const { return folder_ / concat(format, ".all"); }

fs::path FileStore::file_of(const std::string& key) const {
  std::string name;
  for (const unsigned char c : key) {
    name += std::isalnum(c) != 0 ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02x}", c);
  }
  PEAL_CHECK(!key.empty() && name.size() <= longest_key, "[store] rank ", rank_, ": the key '", key,
             "' is ", key.empty() ? "empty" : "too long for a file's name");
  return folder_ / concat(format, ".", root_, ".", name);
}

// "peal-store-2 WORLD RANK SESSION ROOT": rank 0's session as this one knows it.
void FileStore::show(const std::string& root) const {
  write(presence(rank_), concat(format, " ", world_, " ", rank_, " ", session_, " ", root));
}

void FileStore::wait_until(const std::function<bool()>& over,
                           const std::function<std::string()>& what) const {
  const auto start = Clock::now();
  std::chrono::microseconds nap{200};
  while (!over()) {
    patience_.hopeless();
    PEAL_CHECK(Clock::now() - start < patience_.deadline, "[store] rank ", rank_, " of ", world_,
               " waited ", std::chrono::duration<double>(patience_.deadline).count(),
               " s (PEAL_TIMEOUT) for ", what(), " in ", folder_.string(),
               ": not running, or it sees another folder under this name");
    std::this_thread::sleep_for(nap);
    nap = std::min<std::chrono::microseconds>(2 * nap, std::chrono::milliseconds(50));
  }
}

void FileStore::check_place() const {
  const auto shown = read(presence(rank_));
  PEAL_CHECK(!shown || shown->find(session_) != std::string::npos, "[store] rank ", rank_,
             ": another process is rank ", rank_, " in ", folder_.string(),
             ": give every job a folder of its own, and every process a rank");
}

// Rank 0: the sessions of all that know its own.
void FileStore::gather() {
  std::vector<std::string> sessions(static_cast<std::size_t>(world_));
  sessions[0] = session_;
  int other_world = world_, whose = 0;
  const auto leave_list = [&] {
    std::string text = concat(format, " ", world_);
    for (const std::string& session : sessions) text += " " + (session.empty() ? "-" : session);
    write(list(), text);
  };
  const auto look = [&](int r) {
    std::istringstream words(read(presence(r)).value_or(""));
    std::string kind, session, root;
    int world = 0, who = -1;
    words >> kind >> world >> who >> session >> root;
    if (!words || kind != format || who != r || root != session_) return;
    sessions[static_cast<std::size_t>(r)] = session;
    if (world == world_) return;
    other_world = world;
    whose = r;
  };
  const auto missing = [&] {
    std::string names;
    for (int r = 1; r < world_; ++r) {
      if (sessions[static_cast<std::size_t>(r)].empty())
        names += concat(names.empty() ? "rank " : ", ", r);
    }
    return names;
  };
  wait_until(
      [&] {
        check_place();
        for (int r = 1; r < world_; ++r) {
          if (sessions[static_cast<std::size_t>(r)].empty()) look(r);
        }
        return other_world != world_ || missing().empty();
      },
      [&] { return missing() + " to come"; });
  leave_list();  // by which the others see a wrong world too
  PEAL_CHECK(other_world == world_, "[store] rank 0 of ", world_, " met rank ", whose, " of ",
             other_world, " in ", folder_.string(), ": start all ranks with one world");
  root_ = session_;
}

// The others: rank 0's session, shown to it, and then the list that has this rank's own.
void FileStore::find_root() {
  std::string shown;
  int world = 0;
  wait_until(
      [&] {
        check_place();
        std::istringstream root(read(presence(0)).value_or("")), all(read(list()).value_or(""));
        std::string kind, session, own;
        int their_world = 0, who = -1;
        root >> kind >> their_world >> who >> session;
        if (root && kind == format && who == 0 && session != shown) show(shown = session);
        all >> kind >> world >> session;
        for (int r = 0; r < rank_; ++r) all >> own;
        if (!all || kind != format || own != session_) return false;
        root_ = session;
        return true;
      },
      [&] {
        return shown.empty() ? std::string("rank 0 to come")
                             : std::string("rank 0, or a rank that it waits for, to come");
      });
  if (world == world_) return;
  root_.clear();
  fail(concat("[store] rank ", rank_, " of ", world_, " met rank 0 of ", world, " in ",
              folder_.string(), ": start all ranks with one world"));
}

void FileStore::meet() {
  if (!root_.empty()) return;
  rank_ == 0 ? gather() : find_root();
  std::error_code ignored;  // nobody looks for it any more
  fs::remove(presence(rank_), ignored);
}

void FileStore::set(const std::string& key, const std::string& value) {
  PEAL_CHECK(value.size() <= most_store_bytes, "[store] rank ", rank_, ": a text of ", value.size(),
             " bytes; expected at most ", most_store_bytes);
  meet();
  write(file_of(key), value);
}

std::vector<std::string> FileStore::multi_get(const std::vector<std::string>& keys) {
  meet();
  std::vector<std::optional<std::string>> values(keys.size());
  wait_until(
      [&] {
        for (std::size_t i = 0; i < keys.size(); ++i) {
          if (!values[i]) values[i] = read_value(file_of(keys[i]));
        }
        return std::ranges::all_of(values, [](const auto& value) { return value.has_value(); });
      },
      [&] {
        std::vector<std::string> missing;
        for (std::size_t i = 0; i < keys.size(); ++i) {
          if (!values[i]) missing.push_back(keys[i]);
        }
        return named(missing);
      });
  std::vector<std::string> texts;
  for (auto& value : values) texts.push_back(std::move(*value));
  return texts;
}

// A number that is not there appears with its first amount. False where another came before.
bool FileStore::begin(const fs::path& path, std::int64_t amount) const {
  const fs::path own = path.string() + "." + session_;
  PEAL_CHECK(std::ofstream(own) << amount << std::flush, "[store] rank ", rank_, ": cannot write ",
             own.string(), ": ", std::strerror(errno));
  const bool first = link(own.c_str(), path.c_str()) == 0;
  const int problem = errno;
  std::error_code ignored;
  fs::remove(own, ignored);
  PEAL_CHECK(first || problem == EEXIST, "[store] rank ", rank_, ": cannot make ", path.string(),
             ": ", std::strerror(problem));
  return first;
}

std::int64_t FileStore::add(const std::string& key, std::int64_t amount) {
  meet();
  const fs::path path = file_of(key);
  for (;;) {
    const Socket file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file && errno == ENOENT) {
      if (begin(path, amount)) return amount;
      continue;
    }
    const auto check = [&](bool well, const char* what) {
      PEAL_CHECK(well, "[store] rank ", rank_, ": ", what, " ", path.string(), ": ",
                 std::strerror(errno));
    };
    check(static_cast<bool>(file), "cannot open");
    check(flock(file.get(), LOCK_EX) == 0, "cannot lock");  // until the file is closed
    struct stat now {};
    check(fstat(file.get(), &now) == 0, "cannot look at");
    if (now.st_nlink == 0) continue;  // another has removed or set it meanwhile
    char text[32] = {};
    const auto size = pread(file.get(), text, sizeof text - 1, 0);
    check(size >= 0, "cannot read");
    const std::int64_t sum = number_in(key, {text, static_cast<std::size_t>(size)}) + amount;
    const std::string written = concat(sum);
    const auto length = static_cast<ssize_t>(written.size());
    check(pwrite(file.get(), written.data(), written.size(), 0) == length &&
              (length >= size || ftruncate(file.get(), length) == 0),
          "cannot write");
    return sum;
  }
}

void FileStore::remove(const std::vector<std::string>& keys) {
  meet();
  std::error_code ignored;
  for (const std::string& key : keys) fs::remove(file_of(key), ignored);
}

}  // namespace peal::comm
