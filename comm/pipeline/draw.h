// SPDX-License-Identifier: Apache-2.0
#pragma once

// Draws a run of a pipeline, as text for a terminal or as a picture.
//
// The text has a column for each rank and a row for each time at which an action begins somewhere;
// `|` says that the one above still runs, nothing that the rank is idle. The picture has a lane for
// each rank, time from left to right, and below each lane what the rank has in its stash; numbers
// are micro-batches, and later parts of a rank are darker.
//
// Thread safety: pure functions.

#include <peal/comm/pipeline/simulate.h>

#include <string>
#include <string_view>

namespace peal::comm::pipeline {

// Text for a terminal, a column a rank, time running down.
std::string draw(const Problem& problem, const Run& run);
// A complete SVG file; `note` is a line below the picture.
std::string svg(const Problem& problem, const Run& run, std::string_view title,
                std::string_view note = {});

}  // namespace peal::comm::pipeline
