// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/tools/schedule/view/lesson_views.h>

#include <nlohmann/json.hpp>

#include <string>
#include <utility>

namespace peal::launch {
namespace {

using nlohmann::json;

// A page of `options.*shown`, whose contents `make` makes.
template <typename Shown>
CommandLine& add_lesson(CommandLine& viewing, LessonOptions& options, Shown LessonOptions::*shown,
                        json (*make)(const Shown&), const char* name, const char* about) {
  CommandLine& one = viewing.command(name, about, [&options, shown, make] {
    json view = make(options.*shown);
    const std::string title = view.at("title");
    write_page(options, title, json::array({std::move(view)}));
  });
  one.option("--output", &options.output, "HTML file").required();
  return one;
}

void add_sampler(CommandLine& viewing, LessonOptions& options) {
  SamplerViewOptions& shown = options.sampler;
  CommandLine& one = add_lesson(
      viewing, options, &LessonOptions::sampler, sampler_json, "sampler",
      "shows which rank reads which samples of an epoch that is left in the middle, and how other "
      "ranks take it up");
  one.option("--samples", &shown.samples, "of the data set");
  one.option("--batch-size", &shown.batch_size,
             "samples of a batch; with --way split of all ranks");
  one.option("--ranks", &shown.ranks, "that begin the epoch");
  one.option("--taken", &shown.taken, "steps that they take of it");
  one.option("--resumed", &shown.resumed, "ranks that go on");
  one.option("--way", &shown.way,
             "how ranks share the order: samples (DistributedSampler), batches, split, dispatched "
             "(as Accelerate does), contiguous (as fastai)");
  one.option("--epoch", &shown.epoch, "its number").not_negative();
  one.option("--seed", &shown.seed, "of the order");
  one.flag("--sequential", &shown.sequential, "does not shuffle");
  one.flag("--drop-last", &shown.drop_last, "leaves out what is no full step of all ranks");
  one.flag("--exact", &shown.exact, "every sample once: ranks may differ by one");
}

void add_memory(CommandLine& viewing, LessonOptions& options) {
  MemoryViewOptions& shown = options.memory;
  CommandLine& one = add_lesson(
      viewing, options, &LessonOptions::memory, memory_json, "memory",
      "shows what each rank holds over a step of training, by DDP, with checkpoints, by ZeRO-1, "
      "ZeRO-2 and FSDP");
  one.option("--ranks", &shown.ranks, "that share the model");
  one.option("--blocks", &shown.blocks, "of the model, one behind the other");
  one.option("--width", &shown.width, "of a block, which has four times as many hidden units");
  one.option("--batch", &shown.batch, "rows of each rank");
  one.option("--bucket-bytes", &shown.bucket_bytes, "at which a bucket of gradients is closed");
}

void add_failure(CommandLine& viewing, LessonOptions& options) {
  FailureViewOptions& shown = options.failure;
  CommandLine& one = add_lesson(
      viewing, options, &LessonOptions::failure, failure_json, "failure",
      "shows what becomes of ranks, processes here, of which one is killed, stops or makes another "
      "call: who knows when, and what each prints");
  one.option("--how", &shown.how, "killed, throws, shape, root, missing, stopped, or all");
  one.option("--ranks", &shown.ranks, "of which one fails");
  one.option("--deadline", &shown.deadline_ms, "ms, of the group");
}

void add_bits(CommandLine& viewing, LessonOptions& options) {
  BitsViewOptions& shown = options.bits;
  CommandLine& one = add_lesson(
      viewing, options, &LessonOptions::bits, bits_json, "bits",
      "shows the same numbers summed by every all_reduce, bit by bit, and what becomes of the "
      "difference in training");
  one.option("--ranks", &shown.ranks, "whose numbers are summed");
  one.option("--elements", &shown.elements, "of the buffer");
  one.option("--type", &shown.type, "f32, f16 or bf16");
  one.option("--seed", &shown.seed, "of the numbers, and of the model");
  one.option("--steps", &shown.steps, "of training; 0: none");
}

void add_lines(CommandLine& viewing, LessonOptions& options) {
  LinesViewOptions& shown = options.lines;
  CommandLine& one = add_lesson(
      viewing, options, &LessonOptions::lines, lines_json, "lines",
      "shows an all_reduce in memory that ranks share, cache line by cache line: in whose caches "
      "each is, and what moves between them");
  one.option("algorithm", &shown.algorithm, "one that is in shared memory; default: direct_slices");
  one.option("--ranks", &shown.ranks, "that share the memory");
  one.option("--count", &shown.count, "elements of f32");
}

}  // namespace

void add_lesson_views(CommandLine& viewing, LessonOptions& options) {
  add_sampler(viewing, options);
  add_memory(viewing, options);
  add_failure(viewing, options);
  add_bits(viewing, options);
  add_lines(viewing, options);
}

}  // namespace peal::launch
