// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/pipeline/draw.h>
#include <peal/comm/pipeline/verify.h>
#include <peal/launch/tools/schedule/commands.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>

namespace peal::launch {

namespace pipeline = comm::pipeline;

std::string pipeline_title(const pipeline::Problem& problem) {
  return fmt::format("{}: {} stages{}, {} micro-batches", name(problem.kind), problem.stages,
                     problem.chunks > 1 ? fmt::format(" of {} chunks", problem.chunks) : "",
                     problem.micro_batches);
}

std::string bubble_text(const pipeline::Problem& problem, const pipeline::Run& run,
                        const pipeline::Costs& costs) {
  const auto formula = bubble_formula(problem, costs);
  return fmt::format(
      "makespan {:g}, work {:g}: bubble {:g}, {:.1f} % of the time, {:.1f} % of the work; {}",
      run.makespan, run.work, run.bubble(), 100 * run.bubble() / run.makespan,
      100 * run.bubble() / run.work,
      formula ? fmt::format("by formula {} = {:g}", formula->text, formula->value) : "no formula");
}

namespace {

// Of a rank's layers.
std::string shares(const pipeline::Problem& problem, const std::vector<int>& stash) {
  std::string said;
  for (const int entries : stash) {
    said += fmt::format("{}{:g}", said.empty() ? "" : " ", double(entries) / problem.chunks);
  }
  return said;
}

std::vector<int> bounds(const pipeline::Problem& problem) {
  std::vector<int> all;
  for (int rank = 0; rank < problem.stages; ++rank) all.push_back(stash_bound(problem, rank));
  return all;
}

int show_one(const pipeline::Problem& problem, const PipelineOptions& options) {
  const std::vector<pipeline::Program> programs = schedule(problem);
  const pipeline::Run run = simulate(problem, programs, options.costs);
  const std::string bubble = bubble_text(problem, run, options.costs);
  fmt::print("{}\n", pipeline_title(problem));
  if (!options.programs && !options.verify && options.draw.empty()) {
    fmt::print("{}\n", draw(problem, run));
  }
  for (std::size_t r = 0; options.programs && r < programs.size(); ++r) {
    fmt::print("\nrank {}\n", r);
    for (const pipeline::Step& step : programs[r]) fmt::print("  {}\n", text(step));
  }
  fmt::print("{}\nstash of the ranks, in their layers: {}; at most, by formula: {}\n", bubble,
             shares(problem, run.stash), shares(problem, bounds(problem)));
  int status = 0;
  if (options.verify) {
    const pipeline::Verdict verdict = verify(problem, programs);
    fmt::print("{}\n",
               verdict.ok
                   ? "right: each micro-batch through every part once, nothing before what it "
                     "needs, no deadlock even without buffers, the stash within its bound"
                   : "wrong: " + verdict.why);
    status = verdict.ok ? 0 : 1;
  }
  if (!options.draw.empty())
    write_file(options.draw, svg(problem, run, pipeline_title(problem), bubble));
  return status;
}

int compare_kinds(const PipelineOptions& options) {
  fmt::print("{} stages, {} micro-batches\n\n{:<12} {:>8} {:>8} {:>9} {:>9} {:>9}  {:<13} {}\n",
             options.stages, options.micro_batches, "kind", "makespan", "bubble", "of time",
             "of work", "formula", "", "stash of the ranks, in their layers");
  for (const pipeline::Kind kind : pipeline::all_kinds) {
    const pipeline::Problem problem = make_problem(kind, options.stages, options.micro_batches);
    const pipeline::Run run = simulate(problem, schedule(problem), options.costs);
    const auto formula = bubble_formula(problem, options.costs);
    fmt::print("{:<12} {:>8g} {:>8g} {:>7.1f} % {:>7.1f} % {:>9}  {:<13} {}\n", name(kind),
               run.makespan, run.bubble(), 100 * run.bubble() / run.makespan,
               100 * run.bubble() / run.work, formula ? fmt::format("{:g}", formula->value) : "-",
               formula ? formula->text : "", shares(problem, run.stash));
  }
  return 0;
}

std::vector<pipeline::Skip> skips_of(const std::string& text) {
  std::vector<pipeline::Skip> skips;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    pipeline::Skip skip;
    char dash = 0;
    std::istringstream pair(word);
    PEAL_CHECK(pair >> skip.from >> dash >> skip.to && dash == '-' && pair.peek() == EOF,
               "pipeline: expected skips as 0-2,1-3, got '", text, "'");
    skips.push_back(skip);
  }
  return skips;
}

// All that the tests of the tree prove a part of.
int prove_all() {
  constexpr int most_stages = 16, most_micro_batches = 64, most_chunks = 4;
  const auto began = std::chrono::steady_clock::now();
  fmt::print("1 to {} stages, 1 to {} micro-batches\n\n{:<12} {:>6} {:>7} {:>9} {:>7}\n",
             most_stages, most_micro_batches, "kind", "chunks", "proofs", "= books", "faults");
  std::int64_t proofs = 0, faults = 0;
  std::string first;
  for (const pipeline::Kind kind : pipeline::all_kinds) {
    const int least = pipeline::make_problem(kind, 1, 1).chunks;
    const int most = kind == pipeline::Kind::interleaved ? most_chunks : least;
    for (int chunks = least; chunks <= most; ++chunks) {
      std::int64_t exact = 0, wrong = 0, proven = 0;
      for (int stages = 1; stages <= most_stages; ++stages) {
        for (int micro_batches = 1; micro_batches <= most_micro_batches; ++micro_batches) {
          const auto problem = make_problem(kind, stages, micro_batches, chunks);
          const std::vector<pipeline::Program> programs = schedule(problem);
          const pipeline::Verdict verdict = verify(problem, programs);
          const pipeline::Run run = simulate(problem, programs);
          const auto formula = bubble_formula(problem);
          std::string why = verdict.why;
          if (formula && std::abs(formula->value - run.bubble()) > 1e-9) {
            why += fmt::format("bubble {:g}, by formula {:g}", run.bubble(), formula->value);
          }
          ++proven;
          exact += formula.has_value() && why.empty();
          wrong += !why.empty();
          if (first.empty() && !why.empty()) first = pipeline_title(problem) + ": " + why;
        }
      }
      fmt::print("{:<12} {:>6} {:>7} {:>9} {:>7}\n", name(kind), chunks, proven, exact, wrong);
      proofs += proven;
      faults += wrong;
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  fmt::print("{} proofs, {} faults, in {:.1f} s\n", proofs, faults, seconds.count());
  if (!first.empty()) fmt::print("the first: {}\n", first);
  return faults == 0 ? 0 : 1;
}

}  // namespace

pipeline::Problem pipeline_problem(const std::string& kind, const PipelineOptions& options) {
  pipeline::Problem problem = make_problem(pipeline::kind_named(kind), options.stages,
                                           options.micro_batches, options.chunks);
  problem.skips = skips_of(options.skips);
  return problem;
}

int pipeline_schedule(const PipelineOptions& options) {
  PEAL_CHECK(!options.all || options.verify, "pipeline: --all goes with --verify");
  if (options.all) return prove_all();
  if (options.kind == "all") {
    PEAL_CHECK(
        !options.verify && !options.programs && options.draw.empty() && options.chunks == 0 &&
            options.skips.empty(),
        "pipeline: --kind all compares; --verify, --programs, --draw, --chunks and --skip want one "
        "kind");
    return compare_kinds(options);
  }
  return show_one(pipeline_problem(options.kind, options), options);
}

}  // namespace peal::launch
