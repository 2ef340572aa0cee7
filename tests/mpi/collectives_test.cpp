// SPDX-License-Identifier: Apache-2.0
// The same cases as over threads, over MPI.
#include <peal/comm/start/mpi.h>
#include <peal/comm/transport/mpi/mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "mpi_main.h"

using namespace peal;

namespace {

// Prints what was compared, on all ranks together.
void check_all(const comm::ProcessGroup& group, std::string_view how) {
  const comm::testing::Tally tally = comm::testing::check_collectives(group);
  const Tensor compared = Tensor::scalar(tally.compared);
  group.all_reduce(compared).wait();
  if (group.rank() == 0) {
    MESSAGE(group.transport() << how << ", world " << group.world() << ": " << tally.cases
                              << " cases, " << compared.item<std::int64_t>()
                              << " elements compared, none wrong");
  }
  CHECK(tally.cases > 2000);
  CHECK(tally.compared > 100000);
}

}  // namespace

TEST_CASE("every operation, type and reduction is exact") {
  const comm::ProcessGroup& group = testing::job().group();
  const auto options = comm::ProcessGroup::Options::from_environment();
  check_all(group, options.algorithms.find("native") != std::string::npos ? " native" : "");
}

TEST_CASE("messages that go in pieces, as those past 1 GiB do, are exact") {
  comm::ProcessGroup::Options messages;
  messages.shared_memory = false;
  const auto group = comm::mpi_group(MPI_COMM_WORLD, messages, 1000);
  check_all(group, " in pieces of 1000 B");
  if (group.world() < 2) return;
  CHECK_THROWS_WITH_AS((void)group.recv(Tensor::zeros({1000}, DType::u8), comm::any_source),
                       doctest::Contains("expected at most 999 bytes from any source"), Error);
  // With a last piece that is empty, one byte, or nearly whole.
  for (const std::int64_t count : {0, 1, 999, 1000, 1001, 2000, 2001}) {
    if (group.rank() > 1) break;
    std::vector<std::uint8_t> bytes;
    for (std::int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(i * 7));
    const Tensor data =
        group.rank() == 0 ? Tensor::from(bytes, {count}) : Tensor::zeros({count}, DType::u8);
    (group.rank() == 0 ? group.send(data, 1) : group.recv(data, 0)).wait();
    CHECK(data.to_vector<std::uint8_t>() == bytes);
  }
  group.barrier().wait();
}

TEST_CASE("pieces of no bytes, or of more than MPI can count, are an error before anything else") {
  for (const std::size_t piece : {(std::size_t{1} << 30) + 1, std::size_t{0}}) {
    const std::string error = concat("a piece of ", piece, " bytes; expected 1 to 1073741824");
    CHECK_THROWS_WITH_AS((void)comm::mpi_group(MPI_COMM_WORLD, {}, piece),
                         doctest::Contains(error.c_str()), Error);
  }
}

TEST_CASE("pieces of a message that is longer or shorter than its receiver expects are an error") {
  const comm::ProcessGroup& everyone = testing::job().group();
  if (everyone.world() < 2) return;
  const auto meet = [&](std::int64_t sent, std::int64_t expected, const std::string& error) {
    const auto group = comm::mpi_group(MPI_COMM_WORLD, {}, 1000);
    everyone.barrier().wait();  // all have made it, before it fails
    if (group.rank() == 1) {
      CHECK_THROWS_WITH_AS(group.recv(Tensor::zeros({expected}, DType::u8), 0).wait(),
                           doctest::Contains(error.c_str()), Error);
    } else if (group.rank() == 0) {
      const comm::Work sending = group.send(Tensor::zeros({sent}, DType::u8), 1);
      CHECK_THROWS_AS(group.recv(Tensor::zeros({1}), 1).wait(), Error);  // rank 1's error
    }
    everyone.barrier().wait();  // all know that the group has failed
  };
  meet(3000, 2000, "expected 2000 bytes from rank 0, got more");
  meet(1000, 2500, "expected 2500 bytes from rank 0, got 1000");
}

TEST_CASE("a large message keeps its place") {
  const comm::ProcessGroup& group = testing::job().group();
  const std::int64_t count = 3'000'001;
  const Tensor data = Tensor::empty({count});
  for (std::int64_t i = 0; i < count; ++i)
    data.data<float>()[i] = static_cast<float>((i % 1000) * (group.rank() + 1));
  group.all_reduce(data).wait();
  const float ranks = static_cast<float>(group.world() * (group.world() + 1) / 2);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i)
    wrong += data.data<float>()[i] != static_cast<float>(i % 1000) * ranks;
  CHECK(wrong == 0);
}

TEST_CASE("a receive that nothing has come for is called back, and MPI keeps nothing of it") {
  using namespace comm;
  const ProcessGroup& everyone = peal::testing::job().group();
  const auto transport =
      MpiTransport::duplicate(MPI_COMM_WORLD, MpiTransport::largest_piece, Patience{});
  const int rank = transport->rank(), world = transport->world();
  if (world < 2) return;
  const int to = (rank + 1) % world, from = (rank + world - 1) % world;
  static std::byte buffers[3][64];  // MPI has one for ever
  std::byte mine[64];
  std::fill(std::begin(mine), std::end(mine), std::byte(rank));
  const auto receive = [&](std::byte* data) {
    const Message message{Direction::recv, from, data, 64};
    return transport->post({}, {&message, 1});
  };
  const Ticket first = receive(buffers[0]);
  CHECK_FALSE(transport->test(first));
  CHECK(transport->cancel(first));
  CHECK(transport->open(first).empty());
  everyone.barrier().wait();
  // What comes later is another's.
  const Ticket second = receive(buffers[1]);
  const Message message{Direction::send, to, mine, sizeof mine};
  const Ticket sent = transport->post({}, {&message, 1});
  for (bool done = false, gone = false; !done || !gone;) {
    done = done || transport->test(second);
    gone = gone || transport->test(sent);
  }
  CHECK(buffers[1][63] == std::byte(from));
  CHECK(buffers[0][63] == std::byte{0});
  everyone.barrier().wait();
  // After a failure MPI is asked for nothing.
  const Ticket last = receive(buffers[2]);
  transport->abandon();
  CHECK_FALSE(transport->cancel(last));
}

TEST_CASE("rank 0 goes first, and its failure is everyone's") {
  const comm::ProcessGroup& group = testing::job().group();
  int calls = 0;
  launch::rank0_first(group, [&] { ++calls; });
  CHECK(calls == 1);
  CHECK_THROWS_WITH(launch::rank0_first(group,
                                        [&] {
                                          if (group.rank() == 0) throw Error("no such host");
                                        }),
                    doctest::Contains("no such host"));
  group.barrier().wait();
}
