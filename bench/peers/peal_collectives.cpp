// SPDX-License-Identifier: Apache-2.0
// peal's collectives, timed as collective_turns.h says: what native_collectives.cpp is for an MPI.
//
//   peal-mpirun -n N peal_collectives OPERATION BOARD MOST_BYTES heap|ordinary
//
// heap: the buffers are memory for collectives (ProcessGroup::allocate); ordinary: any other.
#include <peal/autograd/core/error.h>
#include <peal/bench/peers/collective_turns.h>
#include <peal/comm/reduce/cpu/combine.h>
#include <peal/launch/job.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace {

using namespace peal;
using bench::Operation;

int usage() {
  std::fputs("peal_collectives OPERATION BOARD MOST_BYTES heap|ordinary\n", stderr);
  return 1;
}

View first(const Tensor& buffer, std::size_t count) {
  const View all = buffer.view();
  return {all.storage, all.at, static_cast<std::int64_t>(count), DType::f32};
}

void call(const comm::ProcessGroup& group, Operation what, const Tensor& in, const Tensor& out,
          std::size_t count, std::size_t block) {
  switch (what) {
    case Operation::all_reduce:
      return group.all_reduce(first(in, count)).wait();
    case Operation::all_gather:
      return group.all_gather(first(out, count), first(in, block)).wait();
    case Operation::reduce_scatter:
      return group.reduce_scatter(first(out, block), first(in, count)).wait();
    case Operation::broadcast:
      return group.broadcast(first(in, count), 0).wait();
    case Operation::reduce:
      return group.reduce(first(in, count), 0).wait();
    case Operation::alltoall:
      return group.all_to_all(first(out, count), first(in, count)).wait();
    case Operation::update: {  // each element is the greater of itself and itself
      std::byte* const own = in.view().data();
      comm::combine(DType::f32, comm::ReduceOp::max, std::array{own},
                    std::array<const std::byte*, 2>{own, own}, static_cast<std::int64_t>(count),
                    false);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return usage();
  const bool heap = std::string_view(argv[4]) == "heap";
  if (!heap && std::string_view(argv[4]) != "ordinary") return usage();
  return launch::run_main([&](launch::Job& job) {
    const comm::ProcessGroup& group = job.group();
    const char* expected = std::getenv("PEERS_RANKS");
    PEAL_CHECK(expected == nullptr || std::atoi(expected) == job.world(), "expected ", expected,
               " ranks, got ", job.world());
    const Operation what = bench::operation_named(argv[1]);
    const std::int64_t most = std::atoll(argv[3]), room = most / 4;
    const auto buffer = [&] {
      return heap ? group.allocate({room}) : Tensor::zeros({room}, DType::f32, Device{});
    };
    const Tensor in = buffer(), out = bench::in_place(what) ? in : buffer();
    bench::Turns turns(argv[2], what, job.rank(), job.world(), in.data<float>(), out.data<float>(),
                       static_cast<std::size_t>(most));
    group.barrier().wait();
    turns.take(
        [&](std::size_t count, std::size_t block) { call(group, what, in, out, count, block); });
  });
}
