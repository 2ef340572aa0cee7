// SPDX-License-Identifier: Apache-2.0
// Plan: a rank's program, ready to run: checked once, with what any run of it takes. Runs of one
// collective share it. Thread safety: a value.
#pragma once

#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <string>

namespace peal::comm {

struct Plan {
  // std::invalid_argument for steps that make no sense, whatever the buffers.
  explicit Plan(Program made, std::string name = "own");
  Program program;
  std::string name;           // of the algorithm
  std::int64_t arriving = 0;  // the most elements that come to be reduced in any one round
  // How much of each Buffer it touches, up to the last element, and the highest rank it talks to.
  std::int64_t extent[buffer_kinds] = {};
  int highest_peer = nobody;
  bool one_sided = false;  // touches memory of others
  bool from_any = false;   // has a receive from any source
};

}  // namespace peal::comm
