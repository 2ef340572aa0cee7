// SPDX-License-Identifier: Apache-2.0
// The collectives as users call them: each checks its sizes, and says what is to be run.
#include <peal/autograd/core/failure_words.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/reduce/reduce_op.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace peal::comm {
namespace {

void check_like(const View& out, const View& in, std::string_view what) {
  PEAL_CHECK(out.dtype == in.dtype, what, ": in is ", in.dtype, ", out is ", out.dtype);
}

// Of counts by rank.
std::int64_t checked_total(const GroupBody& group, const std::vector<std::int64_t>& counts,
                           std::string_view what) {
  PEAL_CHECK(static_cast<int>(counts.size()) == group.world, what,
             ": expected a count for each of ", group.world, " ranks, got ", counts.size());
  const auto negative = std::ranges::find_if(counts, [](std::int64_t count) { return count < 0; });
  PEAL_CHECK(negative == counts.end(), what, ": expected counts of 0 and more, got ", *negative,
             " for rank ", negative - counts.begin());
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
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
  return gather_v(out, in, std::vector<std::int64_t>(static_cast<std::size_t>(world()), in.count),
                  root, label);
}

Work ProcessGroup::gather_v(const View& out, const View& in, std::vector<std::int64_t> counts,
                            int root, const Label& label) const {
  const bool here = rank() == root;
  if (here) check_like(out, in, "gather");
  const std::int64_t total = checked_total(body(), counts, "gather");
  const std::int64_t mine = counts[static_cast<std::size_t>(rank())];
  PEAL_CHECK(in.count == mine, "[comm] ", body().lane->who(), ", gather: expected in of ", mine,
             " elements, got ", in.count);
  PEAL_CHECK(!here || out.count == total, "gather: root ", root, " expected out of ", total,
             " elements, got ", out.count);
  return body().start({.what = Collective::gather,
                       .in = in,
                       .out = here ? out : View{.dtype = in.dtype},
                       .root = root,
                       .counts = std::move(counts)},
                      label);
}

Work ProcessGroup::scatter(const View& out, const View& in, int root, const Label& label) const {
  return scatter_v(out, in, std::vector<std::int64_t>(static_cast<std::size_t>(world()), out.count),
                   root, label);
}

Work ProcessGroup::scatter_v(const View& out, const View& in, std::vector<std::int64_t> counts,
                             int root, const Label& label) const {
  const bool here = rank() == root;
  if (here) check_like(out, in, "scatter");
  const std::int64_t total = checked_total(body(), counts, "scatter");
  const std::int64_t mine = counts[static_cast<std::size_t>(rank())];
  PEAL_CHECK(out.count == mine, "[comm] ", body().lane->who(), ", scatter: expected out of ", mine,
             " elements, got ", out.count);
  PEAL_CHECK(!here || in.count == total, "scatter: root ", root, " expected in of ", total,
             " elements, got ", in.count);
  return body().start({.what = Collective::scatter,
                       .in = here ? in : View{.dtype = out.dtype},
                       .out = out,
                       .root = root,
                       .counts = std::move(counts)},
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

Work ProcessGroup::all_to_all_single(const View& out, const View& in,
                                     const std::vector<std::int64_t>& out_counts,
                                     const std::vector<std::int64_t>& in_counts,
                                     const Label& label) const {
  const auto ranks = static_cast<std::int64_t>(world());
  const std::string wrong = failure_in([&] {  // of this rank's own
    check_like(out, in, "all_to_all_single");
    const std::int64_t wanted = checked_total(body(), out_counts, "all_to_all_single, out_counts"),
                       given = checked_total(body(), in_counts, "all_to_all_single, in_counts");
    PEAL_CHECK(in.count == given && out.count == wanted, "all_to_all_single: expected in of ",
               given, " and out of ", wanted, " elements, got ", in.count, " and ", out.count);
  });
  // Of each rank what it gives to all, what it wants of all, and whether anything is wrong.
  const std::int64_t row = 2 * ranks + 1;
  const Tensor told = Tensor::zeros({ranks, row}, DType::i64, Device{});
  std::int64_t* const mine = told.data<std::int64_t>() + rank() * row;
  if (wrong.empty()) {
    std::ranges::copy(in_counts, mine);
    std::ranges::copy(out_counts, mine + ranks);
  }
  mine[2 * ranks] = wrong.empty() ? 0 : 1;
  all_gather(told, told.view().part(rank() * row, row)).wait();
  const std::int64_t* const of_all = told.data<std::int64_t>();
  for (std::int64_t r = 0; r < ranks; ++r) {
    if (of_all[r * row + 2 * ranks] == 0) continue;
    agree_unless(*this, concat("[comm] ", body().lane->who()), "", wrong, "");
  }
  std::vector<std::int64_t> counts;
  for (std::int64_t from = 0; from < ranks; ++from) {
    for (std::int64_t to = 0; to < ranks; ++to) {
      const std::int64_t given = of_all[from * row + to];
      const std::int64_t wanted = of_all[to * row + ranks + from];
      PEAL_CHECK(given == wanted, "[comm] ", body().lane->who(), ", all_to_all_single: rank ",
                 global_rank(static_cast<int>(from)), " gives rank ",
                 global_rank(static_cast<int>(to)), " ", given, " elements, but that one expects ",
                 wanted);
      counts.push_back(given);
    }
  }
  return all_to_all_v(out, in, std::move(counts), label);
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
  PEAL_CHECK(!call.reduces() || !group.options.deterministic, "[comm] ", group.lane->who(),
             ", run: ", name(what), " by the schedule ", plan->name,
             ", which is none of the table: in deterministic mode (PEAL_DETERMINISTIC=1) sums are "
             "made by those that are known to add from rank 0 to the last");
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
