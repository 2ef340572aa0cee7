// SPDX-License-Identifier: Apache-2.0
#pragma once

// One step of data-parallel training as a picture: a panel for each rank, on one axis of time; in
// it the ops of forward and backward above, a row for each bucket below, and in red the time in
// which the rank does nothing but wait.
//
// Thread safety: plain values and pure functions.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

enum class StepPart : std::uint8_t {
  forward,
  backward,
  exposed,
  queue,
  copy_in,
  slowest,
  wire,
  copy_out
};
std::string_view name(StepPart part);

struct StepBar {
  StepPart part;
  double begin, end;  // seconds
  std::string text;
};
struct StepLane {
  std::string name, note;  // left of it, and right
  std::vector<StepBar> bars;
};
struct StepPanel {
  std::string name;
  std::vector<StepLane> lanes;  // the first is that of ops
};
struct StepPicture {
  std::vector<StepPanel> panels;
};

// A complete SVG file. Bars that are wide enough have their text in them, and all say what they are
// under the pointer.
std::string svg(const StepPicture& picture, std::string_view title);

}  // namespace peal::comm
