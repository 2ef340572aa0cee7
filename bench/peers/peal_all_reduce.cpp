// SPDX-License-Identifier: Apache-2.0
// peal's all_reduce, timed as all_reduce_turns.h says: what native_all_reduce.cpp is for an MPI.
//
//   peal-run -n N peal_all_reduce BOARD MOST_BYTES heap|ordinary
//
// heap: the buffer is memory for collectives (ProcessGroup::allocate); ordinary: any other.
#include <peal/autograd/core/error.h>
#include <peal/bench/peers/all_reduce_turns.h>
#include <peal/launch/job.h>

#include <string_view>

namespace {

int usage() {
  std::fputs("peal_all_reduce BOARD MOST_BYTES heap|ordinary\n", stderr);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace peal;
  if (argc != 4) return usage();
  const bool heap = std::string_view(argv[3]) == "heap";
  if (!heap && std::string_view(argv[3]) != "ordinary") return usage();
  return launch::run_main([&](launch::Job& job) {
    const comm::ProcessGroup& group = job.group();
    const char* expected = std::getenv("PEERS_RANKS");
    PEAL_CHECK(expected == nullptr || std::atoi(expected) == job.world(), "expected ", expected,
               " ranks, got ", job.world());
    const std::int64_t most = std::atoll(argv[2]), room = most / 4;
    const Tensor data = heap ? group.allocate({room}) : Tensor::zeros({room}, DType::f32, Device{});
    const View view = data.view();
    bench::Turns turns(argv[1], job.rank(), job.world(), data.data<float>(),
                       static_cast<std::size_t>(most));
    group.barrier().wait();
    turns.take([&](std::size_t count) {
      group.all_reduce(View{view.storage, view.at, static_cast<std::int64_t>(count), DType::f32})
          .wait();
    });
  });
}
