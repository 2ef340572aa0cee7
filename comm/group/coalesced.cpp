// SPDX-License-Identifier: Apache-2.0
// Collectives over lists of tensors: those of one type are packed into one buffer, which travels as
// one operation, and unpacked from it; and lists of calls, of which those alike do so.
#include <peal/comm/group/coalescing.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/reduce/reduce_op.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string_view>
#include <utility>

namespace peal::comm {
namespace {

// The types of a list, in the order in which they come first.
std::vector<DType> types_of(const std::vector<View>& list) {
  std::vector<DType> types;
  for (const View& view : list) {
    if (std::find(types.begin(), types.end(), view.dtype) == types.end()) {
      types.push_back(view.dtype);
    }
  }
  return types;
}

std::vector<View> joined(std::vector<View> list, const std::vector<View>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

// `whole` is world times `part`, tensor by tensor.
void check_lists(const std::vector<View>& whole, const std::vector<View>& part, int world,
                 std::string_view what, std::string_view whole_name, std::string_view part_name) {
  PEAL_CHECK(whole.size() == part.size(), what, ": ", whole_name, " has ", whole.size(),
             " tensors, ", part_name, " ", part.size());
  for (std::size_t k = 0; k < whole.size(); ++k) {
    PEAL_CHECK(whole[k].dtype == part[k].dtype, what, ": tensor ", k, " of ", whole_name, " is ",
               whole[k].dtype, ", of ", part_name, " ", part[k].dtype);
    PEAL_CHECK(whole[k].count == part[k].count * world, what, ": tensor ", k, " of ", whole_name,
               " expected ", part[k].count * world, " elements, ", world, " times those of ",
               part_name, ", got ", whole[k].count);
  }
}

// Tensors of one type, those that ranks have in `part` and all of them together in `whole`. A
// buffer that carries them has a block for each rank, in which the tensors follow one another.
struct Packing {
  std::vector<Piece> part, whole;
  std::int64_t block = 0;  // elements

  Packing(const std::vector<View>& parts, const std::vector<View>& wholes, DType dtype, int world) {
    for (std::size_t k = 0; k < parts.size(); ++k) {
      if (parts[k].dtype != dtype) continue;
      part.push_back({parts[k], block});
      block += parts[k].count;
    }
    std::int64_t at = 0;
    for (std::size_t k = 0; k < wholes.size(); ++k) {
      if (wholes[k].dtype != dtype) continue;
      const std::int64_t count = parts[k].count;
      for (int r = 0; r < world; ++r) {
        whole.push_back({wholes[k].part(r * count, count), r * block + at});
      }
      at += count;
    }
  }
};

// A buffer for tensors of these: where the transport moves them, and page-locked where they are
// copied to it.
View packed(const GroupBody& group, const std::vector<View>& list, std::int64_t count,
            DType dtype) {
  CollectiveCall call;
  bool away = false;
  for (const View& view : list) {
    if (view.dtype != dtype) continue;
    call.gathered.push_back({view});
    away = away || view.device().type != DeviceType::cpu;
  }
  Transport& transport = group.route(call);
  if (away && transport.device().type == DeviceType::cpu) return Tensor::pinned({count}, dtype);
  return Tensor::empty({count}, dtype, transport.device());
}

}  // namespace

Work ProcessGroup::all_reduce_coalesced(const std::vector<View>& data, ReduceOp op,
                                        const Label& label) const {
  PEAL_CHECK(op != ReduceOp::premul_sum,
             "all_reduce_coalesced: premul_sum needs a factor; use all_reduce_premultiplied");
  for (const View& view : data) check_reduction(view.dtype, op);  // before any of them starts
  std::vector<Work> works;
  for (const DType dtype : types_of(data)) {
    Packing packing(data, {}, dtype, world());
    const View buffer = packed(body(), data, packing.block, dtype);
    works.push_back(body().start({.what = Collective::all_reduce,
                                  .in = buffer,
                                  .out = buffer,
                                  .op = op,
                                  .counts = {packing.block},
                                  .gathered = packing.part,
                                  .scattered = packing.part},
                                 label));
  }
  return Work::all(std::move(works));
}

Work ProcessGroup::broadcast_coalesced(const std::vector<View>& data, int root,
                                       const Label& label) const {
  std::vector<Work> works;
  for (const DType dtype : types_of(data)) {
    Packing packing(data, {}, dtype, world());
    const View buffer = packed(body(), data, packing.block, dtype);
    works.push_back(body().start({.what = Collective::broadcast,
                                  .in = buffer,
                                  .out = buffer,
                                  .root = root,
                                  .counts = {packing.block},
                                  .gathered = packing.part,
                                  .scattered = packing.part},
                                 label));
  }
  return Work::all(std::move(works));
}

Work ProcessGroup::all_gather_coalesced(const std::vector<View>& out, const std::vector<View>& in,
                                        const Label& label) const {
  check_lists(out, in, world(), "all_gather_coalesced", "out", "in");
  std::vector<Work> works;
  for (const DType dtype : types_of(in)) {
    Packing packing(in, out, dtype, world());
    const View buffer = packed(body(), joined(in, out), packing.block * world(), dtype);
    works.push_back(body().start(
        {.what = Collective::all_gather,
         .in = buffer.part(rank() * packing.block, packing.block),
         .out = buffer,
         .counts = std::vector<std::int64_t>(static_cast<std::size_t>(world()), packing.block),
         .gathered = std::move(packing.part),
         .scattered = std::move(packing.whole)},
        label));
  }
  return Work::all(std::move(works));
}

Work ProcessGroup::reduce_scatter_coalesced(const std::vector<View>& out,
                                            const std::vector<View>& in, ReduceOp op,
                                            const Label& label) const {
  PEAL_CHECK(op != ReduceOp::premul_sum, "reduce_scatter_coalesced: premul_sum needs a factor");
  check_lists(in, out, world(), "reduce_scatter_coalesced", "in", "out");
  for (const View& view : in) check_reduction(view.dtype, op);
  std::vector<Work> works;
  for (const DType dtype : types_of(out)) {
    Packing packing(out, in, dtype, world());
    const View buffer = packed(body(), joined(in, out), packing.block * world(), dtype);
    works.push_back(body().start(
        {.what = Collective::reduce_scatter,
         .in = buffer,
         .out = buffer.part(rank() * packing.block, packing.block),
         .op = op,
         .counts = std::vector<std::int64_t>(static_cast<std::size_t>(world()), packing.block),
         .gathered = std::move(packing.whole),
         .scattered = std::move(packing.part)},
        label));
  }
  return Work::all(std::move(works));
}

void CoalescedCalls::add(Collective what, const View& out, const View& in, ReduceOp op, int root,
                         bool may_join) {
  const auto found = std::ranges::find_if(alike_, [&](const Alike& each) {
    return may_join && each.what == what && each.op == op && each.root == root;
  });
  Alike& place = found != alike_.end() ? *found : alike_.emplace_back(Alike{what, op, root});
  place.out.push_back(out);
  place.in.push_back(in);
}

void CoalescedCalls::all_reduce(const View& data, ReduceOp op) {
  add(Collective::all_reduce, data, data, op, 0, true);
}
void CoalescedCalls::broadcast(const View& data, int root) {
  add(Collective::broadcast, data, data, ReduceOp::sum, root, true);
}
void CoalescedCalls::all_gather(const View& out, const View& in) {
  add(Collective::all_gather, out, in, ReduceOp::sum, 0, true);
}
void CoalescedCalls::reduce_scatter(const View& out, const View& in, ReduceOp op) {
  add(Collective::reduce_scatter, out, in, op, 0, true);
}
void CoalescedCalls::reduce(const View& data, int root, ReduceOp op) {
  add(Collective::reduce, data, data, op, root, false);
}
void CoalescedCalls::gather(const View& out, const View& in, int root) {
  add(Collective::gather, out, in, ReduceOp::sum, root, false);
}
void CoalescedCalls::scatter(const View& out, const View& in, int root) {
  add(Collective::scatter, out, in, ReduceOp::sum, root, false);
}
void CoalescedCalls::all_to_all(const View& out, const View& in) {
  add(Collective::all_to_all, out, in, ReduceOp::sum, 0, false);
}
void CoalescedCalls::send(const View& data, int to, int tag) {
  messages_.push_back({Direction::send, data, to, tag});
}
void CoalescedCalls::recv(const View& data, int from, int tag) {
  messages_.push_back({Direction::recv, data, from, tag});
}

namespace {

// What a call reads or writes.
struct Used {
  const std::byte *begin, *end;
  bool writes;
  std::size_t call;
};

void note_used(std::vector<Used>& all, const View& view, bool writes, std::size_t call) {
  if (!view.storage || view.count == 0) return;
  all.push_back({view.data(), view.data() + view.bytes(), writes, call});
}

// Within a call they may overlap as it says itself. `used` is by where it begins.
bool any_clash(const std::vector<Used>& used) {
  for (std::size_t i = 0; i < used.size(); ++i) {
    for (std::size_t k = i + 1; k < used.size() && used[k].begin < used[i].end; ++k) {
      if (used[i].call != used[k].call && (used[i].writes || used[k].writes)) return true;
    }
  }
  return false;
}

}  // namespace

// A root's buffer is nothing on the others, which give what they like.
void CoalescedCalls::check(const ProcessGroup& group) const {
  std::vector<Used> used;
  std::size_t call = 0;
  for (const Alike& each : alike_) {
    const bool is_root = group.rank() == each.root;
    for (std::size_t k = 0; k < each.out.size(); ++k, ++call) {
      const bool none_out = each.what == Collective::gather && !is_root;
      const bool none_in = each.what == Collective::scatter && !is_root;
      if (!none_out) note_used(used, each.out[k], true, call);
      if (!none_in) note_used(used, each.in[k], false, call);
    }
  }
  for (const P2POp& op : messages_) {
    note_used(used, op.data, op.direction == Direction::recv, call++);
  }
  std::ranges::sort(used, std::less<>(), &Used::begin);
  PEAL_CHECK(!any_clash(used), "[comm] rank ", group.rank(), ", coalescing: two of the ", call,
             " calls use one memory, and one of them writes there: they have no order; wait for "
             "the first before the second is called");
}

Work CoalescedCalls::start(const ProcessGroup& group, const Alike& calls, const Label& label) {
  const bool one = calls.out.size() == 1;
  const View &out = calls.out[0], &in = calls.in[0];
  switch (calls.what) {
    case Collective::all_reduce:
      if (one) return group.all_reduce(out, calls.op, label);
      return group.all_reduce_coalesced(calls.out, calls.op, label);
    case Collective::broadcast:
      if (one) return group.broadcast(out, calls.root, label);
      return group.broadcast_coalesced(calls.out, calls.root, label);
    case Collective::all_gather:
      if (one) return group.all_gather(out, in, label);
      return group.all_gather_coalesced(calls.out, calls.in, label);
    case Collective::reduce_scatter:
      if (one) return group.reduce_scatter(out, in, calls.op, label);
      return group.reduce_scatter_coalesced(calls.out, calls.in, calls.op, label);
    case Collective::reduce:
      return group.reduce(out, calls.root, calls.op, label);
    case Collective::gather:
      return group.gather(out, in, calls.root, label);
    case Collective::scatter:
      return group.scatter(out, in, calls.root, label);
    default:
      return group.all_to_all(out, in, label);
  }
}

Work coalescing(const ProcessGroup& group, const std::function<void(CoalescedCalls&)>& list,
                const Label& label) {
  CoalescedCalls calls;
  list(calls);
  calls.check(group);
  std::vector<Work> works;
  try {
    for (const auto& each : calls.alike_)
      works.push_back(CoalescedCalls::start(group, each, label));
    if (!calls.messages_.empty()) works.push_back(group.batch_isend_irecv(calls.messages_));
  } catch (const std::exception& error) {
    // What has begun has no Work, and others would wait for the rest.
    if (!works.empty()) {
      group.abort(concat("[comm] rank ", group.rank(),
                         ", coalescing, of which a part had begun: ", error.what()));
    }
    throw;
  }
  return Work::all(std::move(works));
}

}  // namespace peal::comm
