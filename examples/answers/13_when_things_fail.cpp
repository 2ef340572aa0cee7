// SPDX-License-Identifier: Apache-2.0
// Answers to the exercises of docs/book/13-when-things-fail.md.
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/checkpoint_folder.h>
#include <peal/nn/models/mlp.h>

#include <doctest/doctest.h>

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

using namespace peal;

TEST_CASE("13.1: sizes that differ are told by both calls, and sooner than a second") {
  std::string told;
  try {
    comm::run_ranks(2, [](const comm::ProcessGroup& group) {
      group.all_reduce(ones({group.rank() == 0 ? 4 : 5})).wait();
    });
  } catch (const Error& error) {
    told = error.what();
  }
  // Sizes travel with the messages, so the first one that comes tells.
  CHECK(told.find("4 f32") != std::string::npos);
  CHECK(told.find("5 f32") != std::string::npos);
}

TEST_CASE("13.2: a file with one wrong bit is passed over") {
  namespace fs = std::filesystem;
  const fs::path path = fs::temp_directory_path() / ("peal-answers-" + std::to_string(getpid()));
  nn::CheckpointFolder folder(path);
  nn::Sequential net = nn::mlp({4, 8, 1});
  const fs::path first = folder.next(1);
  nn::save(first, {{"model", net}});
  const fs::path second = folder.next(2);
  nn::save(second, {{"model", net}});
  CHECK(folder.latest() == second);
  {
    std::fstream file(second, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(fs::file_size(second)) - 40;
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
  }
  CHECK(folder.latest() == first);  // the checksum is of all bytes
  fs::remove_all(path);
}

TEST_CASE(
    "13.3: the best interval is near the root of twice the cost times the time to a failure") {
  constexpr double cost = 10, between_failures = 6 * 3600;
  // Of each second: saves cost cost / t, and a failure loses half an interval.
  const auto lost = [&](double t) { return cost / t + t / 2 / between_failures; };
  double best = 1;
  for (double t = 1; t < 10'000; ++t) {
    if (lost(t) < lost(best)) best = t;
  }
  CHECK(best == doctest::Approx(std::sqrt(2 * cost * between_failures)).epsilon(0.01));
  CHECK(best == doctest::Approx(657).epsilon(0.01));  // eleven minutes
  CHECK(lost(best) < 0.031);
}
