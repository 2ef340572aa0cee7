// SPDX-License-Identifier: Apache-2.0
#include "collective_cases.h"

#include "collective_values.h"

#include <peal/autograd/core/error.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace peal::comm::testing {
namespace {

constexpr DType dtypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,   DType::i32,
                            DType::i64, DType::u8,  DType::i8,  DType::boolean};
constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg,  ReduceOp::prod, ReduceOp::min,
                            ReduceOp::max, ReduceOp::band, ReduceOp::bor,  ReduceOp::bxor};

double rounded(double value, DType dtype) {
  if (dtype == DType::f64) return value;
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::f16) return static_cast<float>(Half(narrow));
  if (dtype == DType::bf16) return static_cast<float>(BFloat16(narrow));
  return narrow;
}

class Checker {
 public:
  explicit Checker(const ProcessGroup& group)
      : group_(group), world_(group.world()), rank_(group.rank()) {}

  Tally run(const std::vector<std::int64_t>& counts, std::span<const DType> types,
            std::span<const ReduceOp> reductions) {
    for (const std::int64_t count : counts) {
      for (const DType dtype : types) {
        for (const ReduceOp op : reductions) {
          if (!meaningful(dtype, op)) continue;
          all_reduce(count, dtype, op);
          reduce_scatter(count, dtype, op);
          reduce(count, dtype, op, static_cast<int>(count % world_));
        }
        for (int root = 0; root < world_; ++root) {
          broadcast(count, dtype, root);
          gather_and_scatter(count, dtype, root);
        }
        all_gather(count, dtype);
        all_to_all(count, dtype);
      }
    }
    ragged();
    many_in_flight();
    for (const DType dtype : types) {
      if (dtype != DType::boolean) premultiplied(dtype);
    }
    subgroups();
    if (world_ > 1) messages();
    from_any_source(group_);
    batched(group_);
    for (const ReduceOp op : reductions) coalesced(group_, types, op);
    objects();
    for (int i = 0; i < 3; ++i, ++tally_.cases) group_.barrier().wait();
    return tally_;
  }

  // `what` alone: sums of i32.
  Tally run(const std::vector<std::int64_t>& counts, Collective what) {
    for (const std::int64_t count : counts) {
      if (what == Collective::all_reduce) all_reduce(count, DType::i32, ReduceOp::sum);
      if (what == Collective::reduce_scatter) reduce_scatter(count, DType::i32, ReduceOp::sum);
      if (what == Collective::all_gather) all_gather(count, DType::i32);
      if (what == Collective::all_to_all) all_to_all(count, DType::i32);
      if (what == Collective::barrier) {
        group_.barrier().wait();
        ++tally_.cases;
      }
      for (int root = 0; root < world_; ++root) {
        if (what == Collective::reduce) reduce(count, DType::i32, ReduceOp::sum, root);
        if (what == Collective::broadcast) broadcast(count, DType::i32, root);
        if (what == Collective::gather || what == Collective::scatter)
          gather_and_scatter(count, DType::i32, root);
      }
    }
    if (what == Collective::all_reduce) many_in_flight();
    if (what == Collective::all_gather || what == Collective::reduce_scatter) ragged();
    return tally_;
  }

 private:
  void same(const Tensor& got, std::int64_t i, double want, std::string_view what, DType dtype,
            ReduceOp op) {
    ++tally_.compared;
    double tolerance = 0;
    if (op == ReduceOp::avg && is_floating(dtype)) {
      want = rounded(want, dtype);
      // NCCL multiplies by 1 / world.
      if (got.device().type == DeviceType::cuda) tolerance = std::abs(want) * 0.008;
    }
    PEAL_CHECK(std::abs(element(got, i) - want) <= tolerance, what, " ", dtype, " ", name(op),
               " of ", got.numel(), " on rank ", rank_, " of ", world_, ": element ", i,
               " expected ", want, ", got ", element(got, i));
  }

  void all_reduce(std::int64_t count, DType dtype, ReduceOp op) {
    tally_.cases += 2;
    const Tensor in = filled(count, dtype, [&](std::int64_t i) { return value(rank_, i, dtype); });
    const Tensor out = Tensor::zeros({count}, dtype), in_place = in.clone();
    const Work first = group_.all_reduce(out, in, op);
    const Work second = group_.all_reduce(in_place, op);
    second.wait();
    first.wait();
    for (std::int64_t i = 0; i < count; ++i) {
      const double want = expected(world_, i, dtype, op);
      same(out, i, want, "all_reduce", dtype, op);
      same(in_place, i, want, "all_reduce in place", dtype, op);
      same(in, i, value(rank_, i, dtype), "all_reduce's input", dtype, ReduceOp::sum);
    }
  }

  void reduce_scatter(std::int64_t count, DType dtype, ReduceOp op) {
    tally_.cases += 2;
    const Tensor in =
        filled(count * world_, dtype, [&](std::int64_t i) { return value(rank_, i, dtype); });
    const Tensor out = Tensor::zeros({count}, dtype), both = in.clone();
    group_.reduce_scatter(out, in, op).wait();
    const View own = both.view().part(rank_ * count, count);
    group_.reduce_scatter(own, both, op).wait();
    for (std::int64_t i = 0; i < count; ++i) {
      const double want = expected(world_, rank_ * count + i, dtype, op);
      same(out, i, want, "reduce_scatter", dtype, op);
      same(both, rank_ * count + i, want, "reduce_scatter in place", dtype, op);
    }
  }

  void broadcast(std::int64_t count, DType dtype, int root) {
    tally_.cases += 1;
    const Tensor data =
        filled(count, dtype, [&](std::int64_t i) { return value(rank_, i, dtype); });
    group_.broadcast(data, root).wait();
    for (std::int64_t i = 0; i < count; ++i) {
      same(data, i, value(root, i, dtype), "broadcast", dtype, ReduceOp::sum);
    }
  }

  void all_gather(std::int64_t count, DType dtype) {
    tally_.cases += 2;
    const Tensor in = filled(count, dtype, [&](std::int64_t i) { return value(rank_, i, dtype); });
    const Tensor out = Tensor::zeros({count * world_}, dtype),
                 both = Tensor::zeros({count * world_}, dtype);
    group_.all_gather(out, in).wait();
    both.rows(rank_ * count, (rank_ + 1) * count).copy_(in);
    group_.all_gather(both, both.view().part(rank_ * count, count)).wait();
    for (std::int64_t i = 0; i < count * world_; ++i) {
      const double want = value(static_cast<int>(i / std::max<std::int64_t>(count, 1)),
                                i % std::max<std::int64_t>(count, 1), dtype);
      same(out, i, want, "all_gather", dtype, ReduceOp::sum);
      same(both, i, want, "all_gather in place", dtype, ReduceOp::sum);
    }
  }

  void reduce(std::int64_t count, DType dtype, ReduceOp op, int root) {
    tally_.cases += 1;
    const Tensor data =
        filled(count, dtype, [&](std::int64_t i) { return value(rank_, i, dtype); });
    group_.reduce(data, root, op).wait();
    for (std::int64_t i = 0; i < count; ++i) {
      if (rank_ == root) {
        same(data, i, expected(world_, i, dtype, op), "reduce", dtype, op);
      } else {
        same(data, i, value(rank_, i, dtype), "reduce's data off the root", dtype, ReduceOp::sum);
      }
    }
  }

  void gather_and_scatter(std::int64_t count, DType dtype, int root) {
    tally_.cases += 2;
    const Tensor mine =
        filled(count, dtype, [&](std::int64_t i) { return value(rank_, i, dtype); });
    const Tensor all = Tensor::zeros({rank_ == root ? count * world_ : 0}, dtype),
                 back = Tensor::zeros({count}, dtype);
    group_.gather(all, mine, root).wait();
    for (std::int64_t i = 0; i < all.numel(); ++i) {
      same(all, i, value(static_cast<int>(i / count), i % count, dtype), "gather", dtype,
           ReduceOp::sum);
    }
    group_.scatter(back, all, root).wait();
    for (std::int64_t i = 0; i < count; ++i) {
      same(back, i, value(rank_, i, dtype), "scatter", dtype, ReduceOp::sum);
    }
  }

  void all_to_all(std::int64_t count, DType dtype) {
    tally_.cases += 1;
    // What rank s has for rank d: value(s, d * count + i).
    const Tensor in =
        filled(count * world_, dtype, [&](std::int64_t i) { return value(rank_, i, dtype); });
    const Tensor out = Tensor::zeros({count * world_}, dtype);
    group_.all_to_all(out, in).wait();
    for (std::int64_t i = 0; i < count * world_; ++i) {
      same(out, i, value(static_cast<int>(i / count), rank_ * count + i % count, dtype),
           "all_to_all", dtype, ReduceOp::sum);
    }
  }

  // Round the ring, with tags waited for in another order than sent, and a message pending across a
  // collective.
  void messages() {
    tally_.cases += 5;
    const int next = (rank_ + 1) % world_, previous = (rank_ + world_ - 1) % world_;
    const auto at = [](int rank, int tag) {
      return [=](std::int64_t i) { return value(rank, i + tag, DType::f32); };
    };
    std::vector<Tensor> in, out;
    std::vector<Work> sends, receives;
    for (int tag = 0; tag < 5; ++tag) {
      out.push_back(filled(tag * 1000, DType::f32, at(rank_, tag)));
      in.push_back(Tensor::zeros({tag * 1000}));
    }
    for (int tag = 4; tag >= 0; --tag)
      receives.push_back(group_.recv(in[static_cast<std::size_t>(tag)], previous, tag));
    const Tensor sum = Tensor::scalar(std::int64_t{1});
    group_.all_reduce(sum).wait();
    for (int tag = 0; tag < 5; ++tag)
      sends.push_back(group_.send(out[static_cast<std::size_t>(tag)], next, tag));
    for (const Work& work : receives) work.wait();
    for (const Work& work : sends) work.wait();
    for (int tag = 0; tag < 5; ++tag) {
      const Tensor& got = in[static_cast<std::size_t>(tag)];
      for (std::int64_t i = 0; i < got.numel(); ++i) {
        same(got, i, at(previous, tag)(i), "recv", DType::f32, ReduceOp::sum);
      }
    }
  }

  // Rank 0 takes what comes: each sender's messages in its own order, and none lost.
  void from_any_source(const ProcessGroup& group) {
    tally_.cases += 1;
    constexpr int each = 4, tag = 3, turns = 4;
    const int world = group.world();
    const auto text = [](int rank, int k) { return std::int64_t{rank * 100 + k}; };
    std::vector<Tensor> data;
    std::vector<Work> works;
    if (group.rank() == 0) {
      for (int i = 0; i < each * (world - 1); ++i) {
        data.push_back(Tensor::zeros({1}, DType::i64));
        works.push_back(group.recv(data.back(), any_source, tag));
      }
    } else {
      for (int k = 0; k < each; ++k) {
        data.push_back(Tensor::scalar(text(group.rank(), k)));
        works.push_back(group.send(data.back(), 0, tag));
      }
    }
    for (const Work& work : works) work.wait();
    std::vector<int> seen(static_cast<std::size_t>(world), 0);
    for (std::size_t i = 0; group.rank() == 0 && i < works.size(); ++i) {
      const int from = works[i].source();
      same(data[i], 0, static_cast<double>(text(from, seen[static_cast<std::size_t>(from)]++)),
           "recv from any source", DType::i64, ReduceOp::sum);
    }
    if (world < 2 || group.rank() > 1) return;
    // A receive from any source takes its turn among those from one.
    const Tensor first = Tensor::scalar(std::int64_t{1}), second = Tensor::scalar(std::int64_t{2});
    for (const bool any_first : {true, false}) {
      const Work a = group.rank() == 1 ? group.send(first, 0, turns)
                                       : group.recv(first, any_first ? any_source : 1, turns);
      const Work b = group.rank() == 1 ? group.send(second, 0, turns)
                                       : group.recv(second, any_first ? 1 : any_source, turns);
      b.wait();
      a.wait();
      same(first, 0, 1, "the first of two receives", DType::i64, ReduceOp::sum);
      same(second, 0, 2, "the second of two receives", DType::i64, ReduceOp::sum);
      PEAL_CHECK(group.rank() == 1 || (a.source() == 1 && b.source() == 1), "source: ", a.source(),
                 " and ", b.source());
    }
  }

  // To everyone and from everyone, of sizes that grow with the sender, as one Work.
  void batched(const ProcessGroup& group) {
    tally_.cases += 1;
    const int world = group.world(), rank = group.rank();
    std::vector<P2POp> ops;
    std::vector<std::pair<int, Tensor>> received;
    for (int peer = 0; peer < world; ++peer) {
      if (peer == rank) continue;
      for (int tag = 0; tag < 2; ++tag) {
        const auto at = [&](std::int64_t i) { return value(rank, i + peer + tag, DType::i32); };
        received.emplace_back(tag, Tensor::zeros({peer * 10 + tag}, DType::i32));
        ops.push_back({Direction::recv, received.back().second, peer, tag});
        ops.push_back({Direction::send, filled(rank * 10 + tag, DType::i32, at), peer, tag});
      }
    }
    bool done = false;
    const Work work = group.batch_isend_irecv(ops);
    work.then([&done] { done = true; });
    work.synchronize();
    PEAL_CHECK(done && work.test(), "batch_isend_irecv: it is done and says that it is not");
    for (std::size_t k = 0; k < received.size(); ++k) {
      const auto& [tag, data] = received[k];
      const int from = static_cast<int>(k / 2) + (static_cast<int>(k / 2) >= rank);
      for (std::int64_t i = 0; i < data.numel(); ++i) {
        same(data, i, value(from, i + rank + tag, DType::i32), "batch_isend_irecv", DType::i32,
             ReduceOp::sum);
      }
    }
  }

  // All types in one list, three tensors of each, one of them empty.
  void coalesced(const ProcessGroup& group, std::span<const DType> types, ReduceOp op) {
    tally_.cases += 4;
    const std::int64_t sizes[] = {5, 0, 130};
    std::vector<Tensor> reduced, parts, wholes, gathered, scattered, sent;
    const auto views = [](const std::vector<Tensor>& list) {
      return std::vector<View>(list.begin(), list.end());
    };
    for (const std::int64_t size : sizes) {
      for (const DType dtype : types) {
        if (!meaningful(dtype, op)) continue;
        const auto at = [&](std::int64_t i) { return value(rank_, i + size, dtype); };
        reduced.push_back(filled(size, dtype, at));
        parts.push_back(reduced.back().clone());
        sent.push_back(reduced.back().clone());
        wholes.push_back(filled(size * world_, dtype, at));
        gathered.push_back(Tensor::zeros({size * world_}, dtype));
        scattered.push_back(Tensor::zeros({size}, dtype));
      }
    }
    const Work first = group.all_reduce_coalesced(views(reduced), op);
    const Work second = group.all_gather_coalesced(views(gathered), views(parts));
    const Work third = group.reduce_scatter_coalesced(views(scattered), views(wholes), op);
    const int root = world_ - 1;
    const Work fourth = group.broadcast_coalesced(views(sent), root);
    fourth.wait();
    third.wait();
    second.wait();
    first.wait();
    for (std::size_t k = 0; k < reduced.size(); ++k) {
      const std::int64_t size = reduced[k].numel();
      const DType dtype = reduced[k].dtype();
      for (std::int64_t i = 0; i < size; ++i) {
        same(reduced[k], i, expected(world_, i + size, dtype, op), "all_reduce_coalesced", dtype,
             op);
        same(scattered[k], i, expected(world_, rank_ * size + i + size, dtype, op),
             "reduce_scatter_coalesced", dtype, op);
        same(sent[k], i, value(root, i + size, dtype), "broadcast_coalesced", dtype, op);
      }
      for (std::int64_t i = 0; i < size * world_; ++i) {
        same(gathered[k], i, value(static_cast<int>(i / size), i % size + size, dtype),
             "all_gather_coalesced", dtype, ReduceOp::sum);
      }
    }
    group.all_reduce_coalesced({}).wait();
  }

  // Bytes of any value and length, from every root.
  void objects() {
    const auto bytes = [](int rank) {
      std::string text;
      for (int i = 0; i < rank * 300; ++i) text += static_cast<char>(i * 7 + rank);
      return text;
    };
    for (int root = 0; root < world_; ++root) {
      ++tally_.cases;
      ++tally_.compared;
      PEAL_CHECK(group_.broadcast_object(bytes(rank_), root) == bytes(root),
                 "broadcast_object: not what rank ", root, " has, on rank ", rank_);
    }
  }

  // Odd and even ranks apart, each group in reverse order; and a listed one inside of it.
  void subgroups() {
    tally_.cases += 1;
    const auto half = group_.split(rank_ % 2, -rank_);
    const int members = (world_ + 1 - rank_ % 2) / 2;
    PEAL_CHECK(half.world() == members && half.rank() == members - 1 - rank_ / 2, "split: rank ",
               rank_, " is ", half.rank(), " of ", half.world());
    const Tensor sum = Tensor::scalar(std::int64_t{rank_});
    half.all_reduce(sum).wait();
    std::int64_t want = 0;
    for (int r = rank_ % 2; r < world_; r += 2) want += r;
    same(sum, 0, static_cast<double>(want), "all_reduce in a sub-group", DType::i64, ReduceOp::sum);
    from_any_source(half);
    batched(half);
    const auto last = group_.new_group({world_ - 1});
    PEAL_CHECK(bool(last) == (rank_ == world_ - 1), "new_group: rank ", rank_,
               " should not be in it");
    PEAL_CHECK(!group_.split(-1), "split: a negative colour is no group");
  }

  // Blocks of different sizes, one of them empty; texts of different lengths.
  void ragged() {
    tally_.cases += 3;
    std::vector<std::int64_t> counts;
    std::int64_t total = 0, before = 0;
    for (int r = 0; r < world_; ++r) {
      counts.push_back(r == 1 ? 0 : 7 * r + 3);
      if (r < rank_) before += counts.back();
      total += counts.back();
    }
    const std::int64_t mine = counts[static_cast<std::size_t>(rank_)];
    const auto at = [&](std::int64_t i) { return value(rank_, i, DType::i64); };
    const Tensor own = filled(mine, DType::i64, at), gathered = Tensor::zeros({total}, DType::i64);
    group_.all_gather_v(gathered, own, counts).wait();
    for (std::int64_t i = 0; i < mine; ++i) {
      same(gathered, before + i, at(i), "all_gather_v", DType::i64, ReduceOp::sum);
    }
    const Tensor whole = filled(total, DType::i64, at), part = Tensor::zeros({mine}, DType::i64);
    group_.reduce_scatter_v(part, whole, counts).wait();
    for (std::int64_t i = 0; i < mine; ++i) {
      same(part, i, expected(world_, before + i, DType::i64, ReduceOp::sum), "reduce_scatter_v",
           DType::i64, ReduceOp::sum);
    }
    const auto texts =
        group_.all_gather_object(std::string(static_cast<std::size_t>(rank_ * 3), 'a'));
    for (int r = 0; r < world_; ++r) {
      ++tally_.compared;
      PEAL_CHECK(
          texts[static_cast<std::size_t>(r)] == std::string(static_cast<std::size_t>(r * 3), 'a'),
          "exchange: rank ", r, "'s text is wrong on rank ", rank_);
    }
  }

  // Waited for in reverse: operations must not mix, and continuations run in order of issue.
  void many_in_flight() {
    tally_.cases += 20;
    std::vector<Tensor> data;
    std::vector<Work> works;
    std::vector<int> order;
    for (int k = 0; k < 20; ++k) {
      data.push_back(filled(k * 11 + 1, DType::f32,
                            [&](std::int64_t i) { return value(rank_, i + k, DType::f32); }));
      works.push_back(group_.all_reduce(data.back()));
      works.back().then([&order, k] { order.push_back(k); });
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->synchronize();
    for (int k = 0; k < 20; ++k) {
      PEAL_CHECK(order[static_cast<std::size_t>(k)] == k, "then: continuation ", k,
                 " ran out of order");
      for (std::int64_t i = 0; i < data[static_cast<std::size_t>(k)].numel(); ++i) {
        same(data[static_cast<std::size_t>(k)], i,
             expected(world_, i + k, DType::f32, ReduceOp::sum), "in flight", DType::f32,
             ReduceOp::sum);
      }
    }
  }

  void premultiplied(DType dtype) {
    const Tensor data = filled(33, dtype, [&](std::int64_t i) { return value(rank_, i, dtype); });
    group_.all_reduce_premultiplied(data, 4).wait();
    ++tally_.cases;
    for (std::int64_t i = 0; i < 33; ++i) {
      same(data, i, 4 * expected(world_, i, dtype, ReduceOp::sum), "premul_sum", dtype,
           ReduceOp::premul_sum);
    }
  }

  const ProcessGroup& group_;
  int world_, rank_;
  Tally tally_;
};

}  // namespace

Tally check_collectives(const ProcessGroup& group) {
#ifdef __SANITIZE_THREAD__
  constexpr DType dtypes[] = {DType::f32, DType::bf16};
  constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg};
#endif
  return Checker(group).run({0, 1, group.world() - 1, group.world(), group.world() + 1, 97, 5000},
                            dtypes, ops);
}

Tally check_algorithms(const ProcessGroup& group) {
  constexpr DType i32[] = {DType::i32};
  constexpr ReduceOp sum[] = {ReduceOp::sum};
  return Checker(group).run({0, 1, group.world() + 1, 97, 5000}, i32, sum);
}

Tally check_algorithm(const ProcessGroup& group, Collective what) {
  return Checker(group).run({0, 1, group.world(), group.world() + 1, 97, 5000}, what);
}

}  // namespace peal::comm::testing
