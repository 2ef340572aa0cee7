// SPDX-License-Identifier: Apache-2.0
// What the chapters of docs/book run, section by section.
//
// Run it:   build/release/examples/book memory_of_ranks
#include <peal/examples/book/book.h>

#include <cstdio>
#include <exception>
#include <string_view>

namespace {

struct Section {
  const char* name;
  void (*run)();
};

constexpr Section sections[] = {
    {"tape_by_hand", book::tape_by_hand},
    {"tape_of_peal", book::tape_of_peal},
    {"batch_norm_of_ranks", book::batch_norm_of_ranks},
    {"padded_accuracy", book::padded_accuracy},
    {"formats", book::formats},
    {"lost_gradients", book::lost_gradients},
    {"mixed_training", book::mixed_training},
    {"memory_of_ranks", book::memory_of_ranks},
    {"sharded_step", book::sharded_step},
    {"cut_layers", book::cut_layers},
    {"other_calls", book::other_calls},
    {"lost_message", book::lost_message},
    {"failing_rank", book::failing_rank},
    {"going_on", book::going_on},
};

}  // namespace

int main(int argc, char** argv) {
  try {
    for (const Section& section : sections) {
      if (argc != 2 || std::string_view(argv[1]) != section.name) continue;
      section.run();
      return 0;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: book SECTION, one of:");
  for (const Section& section : sections) std::fprintf(stderr, " %s", section.name);
  std::fprintf(stderr, "\n");
  return 2;
}
