// SPDX-License-Identifier: Apache-2.0
// Checksums, and archives that are unpacked into a cache: once, whole or not at all, from a file or
// a server.
#include <peal/autograd/core/sha256.h>
#include <peal/data/formats/sha256.h>
#include <peal/data/untar_data.h>
#include <peal/tests/errors.h>

#include "tar_files.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <thread>

using peal::Sha256;
using peal::data::untar_data;
using peal::testing::check_has;
using peal::testing::content_of;
using peal::testing::error_of;
using peal::testing::Folder;
using peal::testing::put;
using peal::testing::stderr_of;
using peal::testing::tar_entry;
using peal::testing::tar_of;
using peal::testing::text_of;
namespace fs = std::filesystem;

namespace {

std::atomic<bool> no_locks{false};

}  // namespace

// The system's, or that of a file system without locks.
extern "C" int flock(int file, int how) noexcept {
  if (!no_locks) return static_cast<int>(::syscall(SYS_flock, file, how));
  errno = ENOLCK;
  return -1;
}

namespace {

std::string sum_of(std::string_view text, std::size_t step) {
  Sha256 sum;
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  for (std::size_t at = 0; at < text.size(); at += step) {
    sum.add(bytes.subspan(at, std::min(step, text.size() - at)));
  }
  return sum.digest();
}

// Answers GET of these paths, one connection at a time, and counts them.
class Server {
 public:
  explicit Server(std::map<std::string, std::string> files)
      : files_(std::move(files)), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* address = reinterpret_cast<sockaddr*>(&at);
    REQUIRE((::bind(socket_, address, size) == 0 && ::listen(socket_, 8) == 0));
    REQUIRE(::getsockname(socket_, address, &size) == 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    done_ = true;
    thread_.join();
    ::close(socket_);
  }
  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  int asked() const { return asked_; }

 private:
  void serve() {
    while (!done_) {
      pollfd ready{socket_, POLLIN, 0};
      if (::poll(&ready, 1, 20) <= 0) continue;
      const int client = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      std::string request;
      char part[1024];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = ::read(client, part, sizeof part);
        if (got <= 0) break;
        request.append(part, static_cast<std::size_t>(got));
      }
      ++asked_;
      const auto found = files_.find(request.substr(4, request.find(' ', 4) - 4));
      std::string answer =
          "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      if (found != files_.end()) {
        answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " +
                 std::to_string(found->second.size()) + "\r\n\r\n" + found->second;
      }
      std::size_t sent = 0;
      while (sent < answer.size()) {
        const ssize_t now =
            ::send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (now <= 0) break;
        sent += static_cast<std::size_t>(now);
      }
      ::close(client);
    }
  }

  std::map<std::string, std::string> files_;
  int socket_, port_ = 0;
  std::atomic<bool> done_{false};
  std::atomic<int> asked_{0};
  std::thread thread_;
};

const peal::testing::TarFiles small{{"set/a.txt", "one"}, {"set/in/b.txt", "two"}};

}  // namespace

// FIPS 180-4's examples, and NIST's of a million letters.
TEST_CASE("SHA-256 of known texts, added in pieces of any size") {
  for (const std::size_t step : {1, 3, 55, 64, 65, 1000, 2'000'000}) {
    CHECK(sum_of("", step) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sum_of("abc", step) ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sum_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", step) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(sum_of(
              "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmn"
              "opqrlmnopqrsmnopqrstnopqrstu",
              step) == "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    CHECK(sum_of(std::string(1'000'000, 'a'), step) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST_CASE("an archive is unpacked once, and again when it or its sum is another") {
  const Folder folder;
  const std::string archive = put(folder.path / "set.tar", text_of(tar_of(small)));
  const fs::path cache = folder.path / "cache";
  const fs::path made = untar_data(archive, {.cache = cache});
  CHECK(made == cache / "data" / "set");
  CHECK(content_of(made / "set" / "a.txt") == "one");
  CHECK(content_of(made / "set" / "in" / "b.txt") == "two");

  put(made / "mark", "here");  // it is not touched where it is found
  const std::string sum = peal::data::sha256_of(archive);
  CHECK(untar_data(archive, {.sha256 = sum, .cache = cache}) == made);
  CHECK(untar_data("file:" + archive, {.cache = cache}) == made);
  CHECK(fs::exists(made / "mark"));
  std::string capitals = sum;
  for (char& c : capitals) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  CHECK(untar_data(archive, {.sha256 = capitals, .cache = cache}) == made);

  // Another sum is an error, and what was there stays.
  const std::string other(64, '0');
  const std::string message =
      error_of([&] { untar_data(archive, {.sha256 = other, .cache = cache}); });
  check_has(message, "set.tar: expected the sha256 " + other + ", got " + sum);
  CHECK(fs::exists(made / "mark"));
  check_has(error_of([&] { untar_data(archive, {.sha256 = "12", .cache = cache}); }),
            "expected a sha256 of 64 hexadecimal digits, got '12'");

  put(archive, text_of(tar_of({{"set/a.txt", "another"}})));
  CHECK(untar_data(archive, {.cache = cache}) == made);
  CHECK(!fs::exists(made / "mark"));
  CHECK(!fs::exists(made / "set" / "in"));
  CHECK(content_of(made / "set" / "a.txt") == "another");
  fs::remove(archive);  // it serves without its archive
  CHECK(untar_data(archive, {.cache = cache}) == made);
  fs::remove_all(made);
  check_has(error_of([&] { untar_data(archive, {.cache = cache}); }), "set.tar: no such file");
}

TEST_CASE("what is broken leaves nothing behind") {
  const Folder folder;
  const fs::path cache = folder.path / "cache";
  const auto left = [&] {
    std::size_t others = 0;
    for (const auto& entry : fs::directory_iterator(cache / "data")) {
      others += entry.path().extension() != ".lock";
    }
    return others;
  };
  const auto said_of = [&](const std::vector<std::uint8_t>& bytes) {
    const std::string path = put(folder.path / "b.tar.gz", text_of(bytes));
    const std::string said = error_of([&] { untar_data(path, {.cache = cache}); });
    CHECK(left() == 0);
    return said;
  };
  auto cut = tar_of(small);
  cut.resize(700 + 400);
  check_has(said_of(cut), "b.tar.gz: ");
  check_has(said_of(tar_entry("../out.txt", "x")), "'../out.txt' leads out of the folder");
  check_has(said_of(tar_entry("/tmp/out.txt", "x")), "'/tmp/out.txt' leads out of the folder");
  check_has(said_of(tar_entry("a/../../out", "x")), "leads out of the folder");
  check_has(said_of(tar_entry("a", "", '1', "", "../b.tar.gz")), "leads out of the folder");
  check_has(said_of(tar_entry("a", "", '1', "", "b")), "'a' is a link to 'b', which does not come");
  check_has(said_of({'n', 'o'}), "not a tar archive");
  CHECK(!fs::exists(folder.path / "out.txt"));
  // A process that was ended left something.
  fs::create_directories(cache / "data" / "b.tmp" / "half");
  const std::string path = put(folder.path / "b.tar", text_of(tar_of(small)));
  CHECK(content_of(untar_data(path, {.cache = cache}) / "set" / "a.txt") == "one");
  CHECK(left() == 2);  // the folder, and what it was made from
}

TEST_CASE("archives of one name have each a folder, and one content has one") {
  const Folder folder;
  const fs::path cache = folder.path / "cache";
  for (const char* each : {"a", "b", "c"}) fs::create_directories(folder.path / each);
  const std::string a = put(folder.path / "a" / "set.tar", text_of(tar_of(small)));
  const std::string b = (folder.path / "b" / "set.tar").string();
  const fs::path made = untar_data(a, {.cache = cache});
  put(made / "mark", "here");
  // Not there, it is not the other one.
  check_has(error_of([&] { untar_data(b, {.cache = cache}); }), b + ": no such file");

  // Of other content it lies beside, and neither touches the other.
  put(b, text_of(tar_of({{"set/a.txt", "another"}})));
  const fs::path other = untar_data(b, {.cache = cache});
  CHECK(other != made);
  CHECK(other.parent_path() == made.parent_path());
  CHECK(content_of(other / "set" / "a.txt") == "another");
  put(other / "mark", "here");
  CHECK(untar_data(a, {.cache = cache}) == made);
  CHECK(untar_data(b, {.cache = cache}) == other);
  CHECK(fs::exists(made / "mark"));
  CHECK(fs::exists(other / "mark"));
  fs::rename(b, folder.path / "b" / "gone");
  CHECK(untar_data(b, {.cache = cache}) == other);

  // The same content by another path, or written again, leaves the folder to who reads it.
  const std::string c = put(folder.path / "c" / "set.tar", text_of(tar_of(small)));
  CHECK(untar_data(c, {.sha256 = peal::data::sha256_of(c), .cache = cache}) == made);
  fs::last_write_time(a, fs::last_write_time(a) + std::chrono::hours(1));
  CHECK(untar_data(a, {.cache = cache}) == made);
  CHECK(fs::exists(made / "mark"));
}

TEST_CASE("without locks nothing is unpacked") {
  const Folder folder;
  const std::string archive = put(folder.path / "set.tar", text_of(tar_of(small)));
  no_locks = true;
  const std::string message = error_of([&] { untar_data(archive, {.cache = folder.path}); });
  no_locks = false;
  check_has(message, "set.lock: cannot be locked: ");
  check_has(message, "set PEAL_HOME to a folder");
  CHECK(!fs::exists(folder.path / "data" / "set"));
  CHECK(fs::is_directory(untar_data(archive, {.cache = folder.path})));
}

TEST_CASE("symbolic links are left out with a warning, and an empty archive is one") {
  const Folder folder;
  auto bytes = tar_entry("a.txt", "", '2', "", "b.txt");
  const auto more = tar_of(small);
  bytes.insert(bytes.end(), more.begin(), more.end());
  const std::string archive = put(folder.path / "set.tar", text_of(bytes));
  const std::string said = stderr_of([&] {
    const fs::path made = untar_data(archive, {.cache = folder.path});
    CHECK(!fs::exists(made / "a.txt"));
  });
  check_has(said, "set.tar: symbolic links are left out, of which it has 1");
  const std::string empty = put(folder.path / "empty.tar", std::string(10'240, '\0'));
  check_has(error_of([&] { untar_data(empty, {.cache = folder.path}); }), "empty.tar: it is empty");
  const std::string half = put(folder.path / "half.tar", std::string(512, '\0') + "text");
  check_has(error_of([&] { untar_data(half, {.cache = folder.path}); }), "not a tar archive");
}

TEST_CASE("a file with holes is refused: its content lies otherwise than a file's") {
  const Folder folder;
  const auto refused = [&](std::vector<std::uint8_t> bytes) {
    const auto more = tar_of(small);
    bytes.insert(bytes.end(), more.begin(), more.end());
    const std::string archive = put(folder.path / "set.tar", text_of(bytes));
    check_has(error_of([&] { untar_data(archive, {.cache = folder.path}); }),
              "set.tar: 'big.bin' is packed with its holes (sparse); pack it without --sparse");
  };
  refused(tar_entry("big.bin", "1\n0\n", 'S'));
  for (const char* line : {"27 GNU.sparse.size=1000000\n", "31 GNU.sparse.realsize=1000000\n"}) {
    auto bytes = tar_entry("pax", line, 'x');
    const auto file = tar_entry("big.bin", "1\n0\n");
    bytes.insert(bytes.end(), file.begin(), file.end());
    refused(bytes);
  }
}

TEST_CASE("several at once unpack it once") {
  const Folder folder;
  put(folder.path / "set.tar", text_of(tar_of(small)));
  const std::string counted = (folder.path / "counted").string();
  const std::string archive =
      "pipe:echo once >> '" + counted + "'; cat '" + (folder.path / "set.tar").string() + "'";
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const fs::path made = untar_data(archive, {.cache = folder.path});
      if (content_of(made / "set" / "in" / "b.txt") == "two") ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 4);
  CHECK(content_of(counted) == "once\n");
}

TEST_CASE("an archive comes from a server, once, and errors of the server are said") {
  if (std::system("curl --version > /dev/null 2>&1") != 0) {
    MESSAGE("not tried: there is no program curl");
    return;
  }
  const Folder folder;
  const std::string bytes(text_of(tar_of(small)));
  const Server server({{"/x/set.tar?v=2", bytes}});
  const std::string url = server.url("/x/set.tar?v=2");
  const std::string wrong(64, 'a');
  check_has(error_of([&] { untar_data(url, {.sha256 = wrong, .cache = folder.path}); }), wrong);
  const fs::path made = untar_data(url, {.sha256 = sum_of(bytes, 64), .cache = folder.path});
  CHECK(made == folder.path / "data" / "set");
  CHECK(content_of(made / "set" / "a.txt") == "one");
  CHECK(untar_data(url, {.cache = folder.path}) == made);
  CHECK(server.asked() == 2);
  const std::string none = server.url("/none.tar");
  const std::string message = error_of([&] { untar_data(none, {.cache = folder.path}); });
  check_has(message, none + ": the program that reads it ended with status 22: ");
  check_has(message, "404");
}

TEST_CASE("the cache is where the environment says") {
  ::setenv("PEAL_HOME", "/some/place", 1);
  CHECK(peal::data::cache_folder() == "/some/place");
  ::unsetenv("PEAL_HOME");
  ::setenv("XDG_CACHE_HOME", "/c", 1);
  CHECK(peal::data::cache_folder() == "/c/peal");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/h", 1);
  CHECK(peal::data::cache_folder() == "/h/.cache/peal");
  ::unsetenv("HOME");
  check_has(error_of([] { peal::data::cache_folder(); }), "set PEAL_HOME to a folder, or HOME");
}
