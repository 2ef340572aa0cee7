// SPDX-License-Identifier: Apache-2.0
#pragma once

// What peal-schedule can do. Each command prints to stdout, writes the files it is asked for, and
// returns the exit status: 0, or 1 where a schedule is not right. Throw Error for what cannot be
// asked.

#include <peal/comm/pipeline/simulate.h>
#include <peal/comm/record/training_steps.h>
#include <peal/comm/simulate/simulate.h>
#include <peal/launch/tools/schedule/collective_times.h>
#include <peal/launch/tools/schedule/plot.h>
#include <peal/launch/tools/schedule/view/write_page.h>
#include <peal/launch/tools/schedule/world.h>

#include <string>
#include <vector>

namespace peal::launch {

// Links in the terms of the command line; a machine is made of them for each world.
struct MachineOptions {
  double latency_us = 2, inside_latency_us = 0.5;
  double gap_us = 0.2;                              // between two messages of a rank
  double gigabytes = 12.5, inside_gigabytes = 25;   // a second, of one message
  double adapter_gigabytes = 0, bus_gigabytes = 0;  // a second, of all of a node; 0: no limit
  double reduce_gigabytes = 20, copy_gigabytes = 40;
  int node_size = 0;  // 0: a rank is a node
  int ports = 1;
  std::vector<std::string> stragglers;  // rank:late_us:slowdown
  double jitter = 0;
  std::uint64_t seed = 1;
  std::string measured;  // file of a machine, instead of the links above

  comm::Machine machine(int ranks) const;
};

struct ShowOptions {
  std::string algorithm;
  int ranks = 4, root = 0;
  std::int64_t count = -1;  // -1: two elements a block
  std::int64_t chunk = 0;
  bool verify = false, cost = false, simulate = false;
  std::string draw, timeline, trace;  // files
  std::string run;                    // folder
  MachineOptions machine;

  World world(comm::Collective what) const;
};

int list();
int show(comm::Collective what, const ShowOptions& options);
// As PEAL_TRACE leaves it in the folder.
void run_between_threads(const comm::Entry& entry, const World& world,
                         const std::vector<comm::Program>& programs, const comm::Machine& machine,
                         const std::string& folder);
int explain(comm::Collective what, const ShowOptions& options, int rank);

// What each transport runs natively.
int native(const std::vector<comm::Collective>& wanted);

// Damages: drop, shift, peer, count, twice, merge, swap; empty: any.
int break_schedule(comm::Collective what, const ShowOptions& options, const std::string& how,
                   std::uint64_t seed);

struct PipelineOptions {
  std::string kind = "1f1b";                      // or "all"
  int stages = 4, micro_batches = 8, chunks = 0;  // 0: as many as the kind has at least
  comm::pipeline::Costs costs;
  bool verify = false, all = false, programs = false;
  std::string skips;  // "0-2,1-3": parts
  std::string draw;   // file
};
int pipeline_schedule(const PipelineOptions& options);
// Of this kind, and all else as asked for.
comm::pipeline::Problem pipeline_problem(const std::string& kind, const PipelineOptions& options);
// "1f1b: 4 stages, 8 micro-batches", and what of its time is idle.
std::string pipeline_title(const comm::pipeline::Problem& problem);
std::string bubble_text(const comm::pipeline::Problem& problem, const comm::pipeline::Run& run,
                        const comm::pipeline::Costs& costs);

struct VerifyOptions {
  std::string only;  // a collective, or empty for all
  std::vector<int> ranks;
  int threads = 1;
};
int verify_all(const VerifyOptions& options);

struct CompareOptions {
  std::vector<std::string> algorithms;  // empty: all
  std::vector<int> ranks;
  std::vector<std::int64_t> bytes;
  std::int64_t chunk = 0;
  std::string plot;
  MachineOptions machine;
};
int compare(comm::Collective what, const CompareOptions& options);

struct TraceOptions {
  std::string folder;      // of the files that PEAL_TRACE left
  int operation = -1;      // by its line in the list; -1: the one that moves most
  int step = -1;           // of training, by its number, 0: the median one; -1: an operation
  std::string draw, json;  // files
  MachineOptions machine;
};
int trace(const TraceOptions& options);
// The steps of data-parallel training in the run, if there are any, in a list; the one that is
// asked for with its buckets, and drawn.
void print_steps(const std::vector<comm::TrainingStep>& steps);
void show_step(const std::vector<comm::TrainingStep>& steps, const TraceOptions& options);
// 0: the median one. Error where there is none of this number.
const comm::TrainingStep& step_chosen(const std::vector<comm::TrainingStep>& steps, int number);
std::string step_title(const comm::TrainingStep& step);
// -1: of those that move most, the median. Error where it is not whole, or left no steps.
std::size_t operation_chosen(const std::vector<comm::MeasuredCollective>& all, int number);
// The model runs the recorded programs, from the moments at which the ranks began.
comm::Simulation modelled(const comm::MeasuredCollective& one, const MachineOptions& options);
std::string beside_model(const comm::MeasuredCollective& one, const comm::Simulation& simulated);

struct ViewOptions : PageOptions {
  ShowOptions shown;
  PipelineOptions piped;
  TraceOptions traced;
  CompareOptions compared;
  std::string beside;       // another algorithm
  std::string how;          // a damage, "any", or empty: the schedule as it is
  std::uint64_t which = 1;  // of the damages
};
int view(comm::Collective what, const ViewOptions& options);
int view_pipeline(const ViewOptions& options);
int view_trace(const ViewOptions& options);
int view_compare(comm::Collective what, const ViewOptions& options);

struct FlightOptions {
  std::string folder;  // of the files that PEAL_FLIGHT left
  int around = 5;      // calls of each group before the difference, and behind it
};
// 1 where the ranks' calls differ.
int flight(const FlightOptions& options);

struct CalibrateOptions {
  int threads = 0;     // ranks that are threads of this process; 0: those of the launcher
  std::string output;  // file; empty: where groups look for it
  TimingOptions timing;
};
// Collective.
int calibrate(CalibrateOptions options);

struct ChoicesOptions {
  int ranks = 4, nodes = 1;
  bool crowded = false;
  std::string file;  // a tuning file; empty: what is built in
};
int choices(const ChoicesOptions& options);

void write_file(const std::string& path, const std::string& text);

}  // namespace peal::launch
