// SPDX-License-Identifier: Apache-2.0
// The pages of peal-schedule view that show no messages, but what goes with them: who reads what of
// the data, what each rank has in memory, who knows when that a rank has failed, what sums are bit
// by bit, and in whose caches memory is that ranks share. Thread safety: none; one thread adds them
// to its command line.
#pragma once

#include <peal/launch/command_line.h>
#include <peal/launch/tools/schedule/view/bits_json.h>
#include <peal/launch/tools/schedule/view/failure_json.h>
#include <peal/launch/tools/schedule/view/lines_json.h>
#include <peal/launch/tools/schedule/view/memory_json.h>
#include <peal/launch/tools/schedule/view/sampler_json.h>
#include <peal/launch/tools/schedule/view/write_page.h>

namespace peal::launch {

struct LessonOptions : PageOptions {
  SamplerViewOptions sampler;
  MemoryViewOptions memory;
  FailureViewOptions failure;
  BitsViewOptions bits;
  LinesViewOptions lines;
};

// As commands of `viewing`, each of which writes options.output.
void add_lesson_views(CommandLine& viewing, LessonOptions& options);

}  // namespace peal::launch
