// SPDX-License-Identifier: Apache-2.0
// The collectives as users call them: each checks its sizes, and says what is to be run.
#include <peal/comm/group/group_body.h>
#include <peal/comm/reduce/reduce_op.h>

#include <numeric>
#include <stdexcept>
#include <utility>

namespace peal::comm {
namespace {

void check_like(const View& out, const View& in, std::string_view what) {
  PEAL_CHECK(out.dtype == in.dtype, what, ": in is ", in.dtype, ", out is ", out.dtype);
}

}  // namespace

Work ProcessGroup::all_reduce(const View& data, ReduceOp op, const Label& label) const {
  PEAL_CHECK(op != ReduceOp::premul_sum,
             "all_reduce: premul_sum needs a factor; use all_reduce_premultiplied");
  return body().all_reduce(data, data, op, label);
}

Work ProcessGroup::all_reduce(const View& out, const View& in, ReduceOp op,
                              const Label& label) const {
  check_like(out, in, "all_reduce");
  PEAL_CHECK(out.count == in.count, "all_reduce: in has ", in.count, " elements, out ", out.count);
  return body().all_reduce(out, in, op, label);
}

Work ProcessGroup::all_reduce_premultiplied(const View& data, double factor,
                                            const Label& label) const {
  return body().start({.what = Collective::all_reduce,
                       .in = data,
                       .out = data,
                       .op = ReduceOp::premul_sum,
                       .factor = factor,
                       .counts = {data.count}},
                      label);
}

Work ProcessGroup::broadcast(const View& data, int root, const Label& label) const {
  return body().start({.what = Collective::broadcast,
                       .in = data,
                       .out = data,
                       .root = root,
                       .counts = {data.count}},
                      label);
}

Work ProcessGroup::all_gather(const View& out, const View& in, const Label& label) const {
  return all_gather_v(
      out, in, std::vector<std::int64_t>(static_cast<std::size_t>(world()), in.count), label);
}

Work ProcessGroup::all_gather_v(const View& out, const View& in, std::vector<std::int64_t> counts,
                                const Label& label) const {
  check_like(out, in, "all_gather");
  PEAL_CHECK(static_cast<int>(counts.size()) == world(),
             "all_gather: expected a count for each of ", world(), " ranks, got ", counts.size());
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  PEAL_CHECK(in.count == counts[static_cast<std::size_t>(rank())] && out.count == total, "[comm] ",
             body().lane->who(), ", all_gather: expected in of ",
             counts[static_cast<std::size_t>(rank())], " and out of ", total, " elements, got ",
             in.count, " and ", out.count);
  return body().start(
      {.what = Collective::all_gather, .in = in, .out = out, .counts = std::move(counts)}, label);
}

Work ProcessGroup::reduce_scatter(const View& out, const View& in, ReduceOp op,
                                  const Label& label) const {
  return reduce_scatter_v(
      out, in, std::vector<std::int64_t>(static_cast<std::size_t>(world()), out.count), op, label);
}

Work ProcessGroup::reduce_scatter_v(const View& out, const View& in,
                                    std::vector<std::int64_t> counts, ReduceOp op,
                                    const Label& label) const {
  check_like(out, in, "reduce_scatter");
  PEAL_CHECK(op != ReduceOp::premul_sum, "reduce_scatter: premul_sum needs a factor");
  PEAL_CHECK(static_cast<int>(counts.size()) == world(),
             "reduce_scatter: expected a count for each of ", world(), " ranks, got ",
             counts.size());
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  PEAL_CHECK(out.count == counts[static_cast<std::size_t>(rank())] && in.count == total, "[comm] ",
             body().lane->who(), ", reduce_scatter: expected in of ", total, " and out of ",
             counts[static_cast<std::size_t>(rank())], " elements, got ", in.count, " and ",
             out.count);
  return body().start({.what = Collective::reduce_scatter,
                       .in = in,
                       .out = out,
                       .op = op,
                       .counts = std::move(counts)},
                      label);
}

Work ProcessGroup::barrier(const Label& label) const {
  if (world() == 1) return {};
  return body().start({.what = Collective::barrier}, label);
}

Work ProcessGroup::reduce(const View& data, int root, ReduceOp op, const Label& label) const {
  PEAL_CHECK(op != ReduceOp::premul_sum,
             "reduce: premul_sum needs a factor; use all_reduce_premultiplied");
  const View out = rank() == root ? data : View{.dtype = data.dtype};
  return body().start({.what = Collective::reduce,
                       .in = data,
                       .out = out,
                       .op = op,
                       .root = root,
                       .counts = {data.count}},
                      label);
}

Work ProcessGroup::gather(const View& out, const View& in, int root, const Label& label) const {
  const bool here = rank() == root;
  if (here) check_like(out, in, "gather");
  PEAL_CHECK(!here || out.count == in.count * world(), "gather: root ", root, " expected out of ",
             in.count * world(), " elements, got ", out.count);
  return body().start(
      {.what = Collective::gather,
       .in = in,
       .out = here ? out : View{.dtype = in.dtype},
       .root = root,
       .counts = std::vector<std::int64_t>(static_cast<std::size_t>(world()), in.count)},
      label);
}

Work ProcessGroup::scatter(const View& out, const View& in, int root, const Label& label) const {
  const bool here = rank() == root;
  if (here) check_like(out, in, "scatter");
  PEAL_CHECK(!here || in.count == out.count * world(), "scatter: root ", root, " expected in of ",
             out.count * world(), " elements, got ", in.count);
  return body().start(
      {.what = Collective::scatter,
       .in = here ? in : View{.dtype = out.dtype},
       .out = out,
       .root = root,
       .counts = std::vector<std::int64_t>(static_cast<std::size_t>(world()), out.count)},
      label);
}

Work ProcessGroup::all_to_all(const View& out, const View& in, const Label& label) const {
  PEAL_CHECK(in.count % world() == 0, "all_to_all: in of ", in.count,
             " elements does not divide by ", world(), " ranks; use all_to_all_v");
  const auto pairs = static_cast<std::size_t>(world()) * static_cast<std::size_t>(world());
  return all_to_all_v(out, in, std::vector<std::int64_t>(pairs, in.count / world()), label);
}

Work ProcessGroup::all_to_all_v(const View& out, const View& in, std::vector<std::int64_t> counts,
                                const Label& label) const {
  check_like(out, in, "all_to_all");
  PEAL_CHECK(static_cast<std::int64_t>(counts.size()) == std::int64_t{world()} * world(),
             "all_to_all: expected a count for each of ", world(), " x ", world(), " pairs, got ",
             counts.size());
  std::int64_t row = 0, column = 0;
  for (int r = 0; r < world(); ++r) {
    row += counts[static_cast<std::size_t>(rank() * world() + r)];
    column += counts[static_cast<std::size_t>(r * world() + rank())];
  }
  PEAL_CHECK(in.count == row && out.count == column, "[comm] ", body().lane->who(),
             ", all_to_all: expected in of ", row, " and out of ", column, " elements, got ",
             in.count, " and ", out.count);
  return body().start(
      {.what = Collective::all_to_all, .in = in, .out = out, .counts = std::move(counts)}, label);
}

Work ProcessGroup::run(Collective what, std::shared_ptr<const Plan> plan, const View& out,
                       const View& in, ReduceOp op, const Label& label) const {
  GroupBody& group = body();
  PEAL_CHECK(plan != nullptr, "run: expected a plan, got none");
  check_like(out, in, "run");
  CollectiveCall call{.what = what, .in = in, .out = out, .op = op, .purpose = label.tag};
  const auto room =
      static_cast<std::int64_t>(Window::room_bytes / size_of(native_call(call).dtype));
  const std::int64_t sizes[] = {in.count, out.count, plan->program.scratch, room};
  for (const Buffer buffer : {Buffer::in, Buffer::out, Buffer::scratch, Buffer::room}) {
    const auto b = static_cast<std::size_t>(buffer);
    PEAL_CHECK(plan->extent[b] <= sizes[b], "[comm] ", body().lane->who(),
               ", run: the program uses ", plan->extent[b], " elements of ", name(buffer),
               ", which has ", sizes[b]);
  }
  PEAL_CHECK(plan->highest_peer < world(), "[comm] ", body().lane->who(),
             ", run: the program talks to rank ", plan->highest_peer, " of a world of ", world());
  PEAL_CHECK(!plan->from_any, "run: a schedule names the rank of every message");
  if (call.reduces()) check_reduction(call.dtype(), op);
  PEAL_CHECK(op != ReduceOp::premul_sum, "run: premul_sum needs a factor");
  Transport& transport = group.route(call);
  if (!group.captures(transport)) {
    group.refuse_capture(describe(call, group.sequence(), label.text), transport);
  }
  group.check_window(*plan, transport, "run");
  std::uint64_t turn = 0;
  const Channel channel = group.next_channel(call, transport, plan->one_sided ? &turn : nullptr);
  return group.submit(std::move(call), std::move(plan), transport, channel, label.text, turn);
}

Work ProcessGroup::run(Collective what, std::string_view algorithm, const View& out, const View& in,
                       std::vector<std::int64_t> counts, ReduceOp op, int root,
                       const Label& label) const {
  GroupBody& group = body();
  check_like(out, in, "run");
  PEAL_CHECK(op != ReduceOp::premul_sum, "run: premul_sum needs a factor");
  const Problem problem{.what = what,
                        .rank = group.rank,
                        .world = group.world,
                        .root = root,
                        .counts = counts,
                        .nodes = group.nodes};
  try {
    validate(problem);
  } catch (const std::invalid_argument& error) {
    fail(concat("[comm] ", group.lane->who(), ", run: ", error.what()));
  }
  const std::int64_t given = in_count(problem), got = out_count(problem);
  PEAL_CHECK((given == 0 || in.count == given) && (got == 0 || out.count == got), "[comm] ",
             group.lane->who(), ", run: ", name(what), " expected in of ", given, " and out of ",
             got, " elements, got ", in.count, " and ", out.count);
  const View nothing{.dtype = out.dtype};
  return group.start({.what = what,
                      .in = given == 0 ? nothing : in,
                      .out = got == 0 ? nothing : out,
                      .op = op,
                      .root = root,
                      .counts = std::move(counts)},
                     label, algorithm);
}

}  // namespace peal::comm
