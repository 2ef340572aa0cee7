// SPDX-License-Identifier: Apache-2.0
// Which collectives a transport runs natively, asked of the function that the runtime asks.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/call.h>
#include <peal/comm/reduce/reduce_op.h>
#include <peal/comm/transport/mpi/native.h>
#include <peal/comm/transport/threads/threads.h>
#include <peal/launch/tools/schedule/commands.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace peal::launch {
namespace {

using comm::Collective, comm::ReduceOp;
using HasNative = std::function<bool(const comm::NativeCall&)>;

constexpr DType types[] = {DType::f32, DType::f64, DType::f16, DType::bf16,   DType::i32,
                           DType::i64, DType::u8,  DType::i8,  DType::boolean};
constexpr ReduceOp reductions[] = {ReduceOp::sum,  ReduceOp::avg, ReduceOp::premul_sum,
                                   ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                                   ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};

// For the least call of its kind.
std::string_view cell(const HasNative& has_native, Collective what, DType dtype, ReduceOp op) {
  comm::CollectiveCall call{
      .what = what, .in = {.dtype = dtype}, .out = {.dtype = dtype}, .op = op};
  call.counts = {1};
  if (call.reduces() && !comm::has_reduction(dtype, op)) return "-";
  const comm::NativeCall asked = native_call(call);
  if (!has_native(asked)) return "schedule";
  return asked.dtype == dtype ? "native" : "as f32";
}

struct Line {
  std::string title;
  std::vector<std::string_view> cells;  // by type
};

// Reductions that have the same cells share a line.
std::vector<Line> lines(const HasNative& has_native, Collective what) {
  std::vector<Line> all;
  const bool reduces = comm::CollectiveCall{.what = what}.reduces();
  for (const ReduceOp op : reductions) {
    if (op == ReduceOp::premul_sum && what != Collective::all_reduce) continue;
    if (op != ReduceOp::sum && !reduces) continue;
    std::vector<std::string_view> cells;
    for (const DType dtype : types) cells.push_back(cell(has_native, what, dtype, op));
    if (what == Collective::barrier) cells.resize(1);  // it has no elements
    const auto same =
        std::find_if(all.begin(), all.end(), [&](const Line& line) { return line.cells == cells; });
    if (same != all.end()) {
      same->title += concat(", ", name(op));
    } else {
      all.push_back({reduces ? concat(name(what), " ", name(op)) : concat(name(what)), cells});
    }
  }
  return all;
}

void print(std::string_view title, const std::vector<std::string_view>& cells) {
  std::string text = fmt::format("{:<32}", title);
  for (const std::string_view cell : cells) text += fmt::format(" {:<8}", cell);
  text.erase(text.find_last_not_of(' ') + 1);
  fmt::print("{}\n", text);
}

}  // namespace

int native(const std::vector<Collective>& wanted) {
  comm::ThreadsTransport threads(std::make_shared<comm::Switchboard>(1), 0);
  const std::pair<std::string_view, HasNative> transports[] = {
      {"mpi", comm::mpi_has_native},
      {"threads", [&](const comm::NativeCall& call) { return threads.has_native(call); }}};
  std::vector<std::string_view> names;
  for (const DType dtype : types) names.push_back(name_of(dtype));
  for (const auto& [transport, has_native] : transports) {
    std::vector<Line> all;
    for (const Collective what : wanted) {
      for (Line& line : lines(has_native, what)) all.push_back(std::move(line));
    }
    const bool any = std::any_of(all.begin(), all.end(), [](const Line& line) {
      return std::any_of(line.cells.begin(), line.cells.end(), [](std::string_view cell) {
        return cell == "native" || cell == "as f32";
      });
    });
    if (!any) {
      fmt::print("{}: nothing is native, all runs as schedules\n", transport);
      continue;
    }
    print(transport, names);
    for (const Line& line : all) print("  " + line.title, line.cells);
  }
  fmt::print(
      "native: the library's own collective runs where PEAL_ALGO asks for it, as in "
      "all_reduce=native;\n  as f32: on elements widened to f32, narrowed at the end; schedule: a "
      "schedule stands in;\n  -: there is no such reduction. MPI counts to {}; beyond, a schedule "
      "stands in.\n",
      comm::mpi_native_limit);
  return 0;
}

}  // namespace peal::launch
