// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/tools/peal/ranks_folder.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

namespace peal::launch {
namespace {

namespace fs = std::filesystem;

// A rank that is being ended may still write there.
void remove(const std::string& path) {
  std::error_code none;
  for (int time = 0; time < 250; ++time) {
    fs::remove_all(path, none);
    if (!fs::exists(path, none)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

[[noreturn]] void remove_after_all(int there, const std::string& path) {
  stand_by();
  for (char word; read(there, &word, 1) > 0;) continue;
  remove(path);
  _exit(0);
}

}  // namespace

RanksFolder::RanksFolder()
    : before_(std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "") {
  Pipe pipe;
  std::error_code none;
  std::string name = fs::temp_directory_path(none) / "peal-test-XXXXXX";
  if (none || mkdtemp(name.data()) == nullptr) return;
  path_ = name;
  setenv("TMPDIR", name.c_str(), 1);
  remover_ = fork();
  if (remover_ == 0) {
    pipe.write.close();
    remove_after_all(pipe.read.fd(), path_);
  }
  here_ = std::move(pipe.write);
}

RanksFolder::~RanksFolder() {
  if (path_.empty()) return;
  here_.close();
  if (remover_ > 0) waitpid(remover_, nullptr, 0);
  remove(path_);  // where there was none, or somebody has ended it
  if (before_.empty()) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", before_.c_str(), 1);
  }
}

}  // namespace peal::launch
