// SPDX-License-Identifier: Apache-2.0
// How kernels split their work over OpenMP's threads.
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/ops/ops.h>

#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

using namespace peal;

TEST_CASE("parallel_for visits every item once, for any number of threads") {
  for (const int threads : {1, 2, 3, 7}) {
    omp_set_num_threads(threads);
    for (const std::int64_t n : {0, 1, 2, 5, 64, 1000}) {
      for (const std::int64_t cost : {std::int64_t{1}, cpu::worth_a_thread}) {
        std::vector<int> visits(static_cast<std::size_t>(n), 0);
        cpu::parallel_for(n, cost, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        CHECK(visits == std::vector<int>(static_cast<std::size_t>(n), 1));
      }
    }
  }
}

TEST_CASE("an exception in one thread's part reaches the caller, and the next call works") {
  omp_set_num_threads(4);
  for (const std::int64_t bad : {0, 3, 7}) {
    CHECK_THROWS_WITH_AS(cpu::parallel_for(8, cpu::worth_a_thread,
                                           [&](std::int64_t begin, std::int64_t end) {
                                             if (begin <= bad && bad < end)
                                               throw std::runtime_error("no memory");
                                           }),
                         "no memory", std::runtime_error);
  }
  std::vector<int> visits(8, 0);
  cpu::parallel_for(8, cpu::worth_a_thread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
  });
  CHECK(visits == std::vector<int>(8, 1));
}

TEST_CASE("a batched product is the same for a batch smaller and larger than the team") {
  const auto whole = [](const Shape& shape) {
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 5) - 2;
    return Tensor::from(values, shape);
  };
  for (const std::int64_t batch : {1, 2, 3, 9}) {
    const Tensor a = whole({batch, 65, 70}), b = whole({batch, 70, 33});
    omp_set_num_threads(1);
    const std::vector<float> alone = matmul(a, b).to_vector<float>();
    omp_set_num_threads(4);
    CHECK(matmul(a, b).to_vector<float>() == alone);
  }
}
