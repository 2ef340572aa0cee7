// SPDX-License-Identifier: Apache-2.0
// How kernels split their work over OpenMP's threads.
#include <peal/autograd/core/cpu_level.h>
#include <peal/autograd/kernels/cpu/blocks.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/ops/gradients.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/ops/optimizer.h>
#include <peal/autograd/tape.h>

#include <doctest/doctest.h>

#include <sys/time.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <ctime>
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

namespace {

// Small whole numbers, whose sums and products are exact in f32 in any order.
Tensor whole(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 5) - 2;
  return Tensor::from(values, shape);
}

// What attention gives, with its gradients: masked, dropped, and of more keys than a tile.
std::vector<float> attended(const AttentionOptions& options) {
  manual_seed(5);
  const Tensor q = randn({3, 200, 8}).set_requires_grad(),
               k = randn({3, 500, 8}).set_requires_grad();
  const Tensor y = scaled_dot_product_attention(q, k, k, options);
  sum(y * y).backward();
  std::vector<float> all;
  for (const Tensor& x : {y, q.grad(), k.grad()}) {
    const auto values = x.detach().to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("attention has the same bits on any number of threads") {
  const Tensor mask = gt(randn({3, 200, 500}), full({}, 0));
  for (const AttentionOptions& options : {AttentionOptions{}, AttentionOptions{.is_causal = true},
                                          AttentionOptions{.attn_mask = mask, .dropout_p = 0.2}}) {
    omp_set_num_threads(1);
    const std::vector<float> alone = attended(options);
    for (const int threads : {2, 3, 7}) {
      omp_set_num_threads(threads);
      CHECK(attended(options) == alone);
    }
  }
}

TEST_CASE("a batched product is the same for a batch smaller and larger than the team") {
  for (const std::int64_t batch : {1, 2, 3, 9}) {
    const Tensor a = whole({batch, 65, 70}), b = whole({batch, 70, 33});
    omp_set_num_threads(1);
    const std::vector<float> alone = matmul(a, b).to_vector<float>();
    omp_set_num_threads(4);
    CHECK(matmul(a, b).to_vector<float>() == alone);
  }
}

// More rows, columns and depth than a block, a group of panels and a panel have; rows a page apart
// and not; onto nothing, a bias and what is there.
TEST_CASE("products in blocks are the sums of products for any number of threads") {
  if (cpu::current_level() == cpu::Level::baseline) return;
  struct Case {
    std::int64_t m, n, k;
    bool transpose_a, transpose_b;
  };
  for (const auto& [m, n, k, ta, tb] : {Case{140, 1570, 590, false, true},
                                        {301, 401, 1024, false, false},
                                        {1024, 130, 600, true, false},
                                        {1301, 65, 70, true, true},
                                        {97, 66, 1300, true, false}}) {
    const Tensor a = whole(ta ? Shape{k, m} : Shape{m, k}),
                 b = whole(tb ? Shape{n, k} : Shape{k, n});
    const Tensor sums = cast(matmul(cast(a, DType::f64), cast(b, DType::f64), ta, tb), DType::f32);
    const Tensor bias = whole({n}), there = whole({m, n});
    const cpu::Product o{m, n, k, ta, tb};
    for (const int threads : {1, 3}) {
      omp_set_num_threads(threads);
      const auto made = [&](const float* onto, std::int64_t row, const Tensor& out) {
        cpu::multiply_in_blocks(out.data<float>(), a.data<float>(), b.data<float>(), onto, row, o);
        return out.to_vector<float>();
      };
      CHECK(made(nullptr, 0, Tensor::empty({m, n}, DType::f32, Device{})) ==
            sums.to_vector<float>());
      CHECK(made(bias.data<float>(), 0, Tensor::empty({m, n}, DType::f32, Device{})) ==
            (sums + bias).to_vector<float>());
      const Tensor onto = there.clone();
      CHECK(made(onto.data<float>(), n, onto) == (sums + there).to_vector<float>());
    }
  }
}

TEST_CASE("sums over rows have the same bits for any number of threads") {
  manual_seed(1);
  // One column would be a sum over all, which adds in f32 first.
  for (const std::int64_t width : {2, 255, 256, 257, 1000}) {
    const Tensor x = randn({300, width}), w = randn({width});
    const auto sums = [&](int threads) {
      omp_set_num_threads(threads);
      w.set_requires_grad();
      w.zero_grad();
      layer_norm(x, {width}, w).backward(x);
      const Tensors both{sum(x, {0}), w.grad()};
      return std::vector{both[0].to_vector<float>(), both[1].to_vector<float>()};
    };
    const auto alone = sums(1);
    std::vector<double> exact(static_cast<std::size_t>(width), 0.0);
    const std::vector<float> all = x.to_vector<float>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      exact[i % exact.size()] += static_cast<double>(all[i]);
    }
    for (std::size_t i = 0; i < exact.size(); ++i)
      CHECK(alone[0][i] == static_cast<float>(exact[i]));
    CHECK(sums(3) == alone);
    CHECK(sums(4) == alone);
  }
}

TEST_CASE("running sums are the same along any dimension for any number of threads") {
  const Tensor x = whole({3, 200, 700});
  for (const int dim : {0, 1, 2}) {
    omp_set_num_threads(1);
    const std::vector<float> alone = cumsum(x, dim).to_vector<float>();
    const std::int64_t apart = dim == 0 ? 200 * 700 : dim == 1 ? 700 : 1;
    CHECK(alone[static_cast<std::size_t>(apart)] ==
          x.to_vector<float>()[0] + x.to_vector<float>()[static_cast<std::size_t>(apart)]);
    for (const int threads : {2, 5}) {
      omp_set_num_threads(threads);
      CHECK(cumsum(x, dim).to_vector<float>() == alone);
    }
  }
}

namespace {

// Around the sizes of blocks, and of what is worth a thread.
const std::vector<std::int64_t> uneven{1, 16383, 16384, 16385, 70001, 0, 5, 33000};

// What two steps over a list make of it, and the norm of its gradients after they were scaled.
struct Stepping {
  std::vector<std::vector<float>> values;
  double norm = 0;
  bool finite = true;
  bool operator==(const Stepping&) const = default;
};

Stepping stepped(DType dtype, int threads, bool one_by_one, float last = 1) {
  omp_set_num_threads(threads);
  manual_seed(3);
  const bool low = is_low_precision(dtype);
  std::vector<Stepped> list;
  Tensors grads;
  for (const std::int64_t n : uneven) {
    const Tensor p = randn({n});
    grads.push_back(cast(randn({n}), dtype));
    list.push_back(
        {p, grads.back(), Tensor::zeros({n}), Tensor::zeros({n}), low ? cast(p, dtype) : Tensor()});
  }
  const Tensor end = grads.back().detach({1}, uneven.back() - 1);
  fill_(end, last);
  Stepping result;
  result.finite = scale_all_finite(grads, 0.5);
  result.norm = clip_norm(grads, 2, 3).item<double>();
  for (int step = 1; step <= 2; ++step) {
    const AdamStep options{.lr = 0.1, .step = step, .decoupled = true};
    if (!one_by_one) {
      adam_step(list, options);
    } else {
      for (const Stepped& each : list) adam_step({&each, 1}, options);
    }
  }
  for (const Stepped& each : list) {
    for (const Tensor& x : {each.param, each.grad, each.first, each.second, each.rounded}) {
      if (x.defined()) result.values.push_back(cast(x, DType::f32).to_vector<float>());
    }
  }
  return result;
}

}  // namespace

TEST_CASE("steps, norms and scales of a list have the same bits for any number of threads") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(dtype);
    const Stepping alone = stepped(dtype, 1, true);
    CHECK(alone.finite);
    CHECK(alone.norm > 100);
    for (const int threads : {1, 2, 3, 7}) {
      CAPTURE(threads);
      CHECK(stepped(dtype, threads, false) == alone);
      CHECK_FALSE(stepped(dtype, threads, false, INFINITY).finite);
    }
  }
}

namespace {

std::atomic<int> alarms{0};

// SIGALRM every 50 us while it lives, with a handler on the stack of whoever it comes to.
class Alarms {
 public:
  Alarms() {
    struct sigaction ours {};
    ours.sa_handler = [](int) { ++alarms; };
    ours.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &ours, &before_);
    const itimerval often{{0, 50}, {0, 50}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Alarms() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  struct sigaction before_;
};

}  // namespace

TEST_CASE("signals are held while oneDNN works, and for good on workers; but not faults") {
  const auto held = [](int signal) {
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, nullptr, &now);
    return sigismember(&now, signal) == 1;
  };
  const bool before = held(SIGTERM);
  {
    const cpu::HeldSignals holding;
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGALRM, SIGPROF}) CHECK(held(signal));
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) CHECK_FALSE(held(fault));
  }
  CHECK_FALSE(before);
  CHECK(held(SIGTERM) == before);
  omp_set_num_threads(3);
  std::atomic<int> open{0};
  cpu::parallel_for(3, cpu::worth_a_thread, [&](std::int64_t, std::int64_t) {
    if (omp_get_thread_num() != 0 && !held(SIGTERM)) ++open;
  });
  CHECK(open == 0);
}

TEST_CASE("a signal in the middle of a product or a convolution writes into nobody's memory") {
  for (const int threads : {1, 2}) {
    omp_set_num_threads(threads);
    const Tensor a = randn({24, 1500}), b = randn({1500, 40}), x = randn({8, 3, 20, 20}),
                 weight = randn({12, 3, 5, 5});
    const auto product = matmul(a, b).to_vector<float>();
    const auto convolved = conv2d(x, weight).to_vector<float>();
    alarms = 0;
    const Alarms ringing;
    bool same = true;
    for (int i = 0; i < 1000 || alarms < 200; ++i) {
      // Blocks beside oneDNN's own, which would be written over.
      const std::vector<std::vector<char>> neighbours(8, std::vector<char>(3000 + 512 * (i % 8)));
      same = same && matmul(a, b).to_vector<float>() == product;
      if (i % 8 == 0) same = same && conv2d(x, weight).to_vector<float>() == convolved;
    }
    CHECK(same);
  }
}

TEST_CASE("products of f64 have the same bits on any number of threads") {
  struct Sizes {
    std::int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Sizes{97, 204, 51}, Sizes{33, 7, 900}, Sizes{5, 301, 300},
                                Sizes{31, 49, 500}, Sizes{1, 4000, 100}, Sizes{4000, 1, 100}}) {
    CAPTURE(m);
    CAPTURE(n);
    const Tensor a = randn({m, k}).to(DType::f64), b = randn({k, n}).to(DType::f64);
    const Tensor at = t(a), bt = t(b);
    const auto products = [&] {
      std::vector<double> all;
      for (const Tensor& x : {matmul(a, b), matmul(t(at), b), matmul(a, t(bt))}) {
        const auto values = x.to_vector<double>();
        all.insert(all.end(), values.begin(), values.end());
      }
      const Tensor left = a.clone().set_requires_grad(), right = b.clone().set_requires_grad();
      const Tensor y = matmul(left, right);
      sum(y * y).backward();  // with each side transposed
      for (const Tensor& x : {left.grad(), right.grad()}) {
        const auto values = x.to_vector<double>();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    omp_set_num_threads(1);
    const auto alone = products();
    double expected = 0;
    for (std::int64_t p = 0; p < k; ++p) {
      expected += a.data<double>()[(m - 1) * k + p] * b.data<double>()[p * n + n - 1];
    }
    CHECK(alone[static_cast<std::size_t>(m * n - 1)] == doctest::Approx(expected).epsilon(1e-12));
    for (const int threads : {2, 3, 7}) {
      omp_set_num_threads(threads);
      CHECK(products() == alone);
    }
  }
}

namespace {

// Processor time, for that is what waiting threads take away from others: f() by more threads than
// cores takes as much as by one, if the threads do not spin.
template <class F>
void check_no_spinning(int times, const F& f) {
  const auto seconds_with = [&](int threads) {
    omp_set_num_threads(threads);
    f();
    const std::clock_t begin = std::clock();
    for (int i = 0; i < times; ++i) f();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  const double alone = seconds_with(1);
  CHECK(seconds_with(4 * omp_get_num_procs()) < 10 * alone);
}

}  // namespace

TEST_CASE("products of f64 by more threads than cores do not wait by spinning") {
  const Tensor a = randn({97, 51}).to(DType::f64), b = randn({51, 204}).to(DType::f64);
  check_no_spinning(50, [&] { matmul(a, b); });
}

TEST_CASE("nor do factors of matrices") {
  const Tensor a = randn({160, 160}).to(DType::f64);
  const int threads = omp_get_max_threads();
  SUBCASE("inverse") {
    check_no_spinning(10, [&] { linalg::inv(a); });
  }
  SUBCASE("solve") {
    check_no_spinning(10, [&] { linalg::solve(a, a); });
  }
  omp_set_num_threads(threads);
  linalg::det(a);
  CHECK(omp_get_max_threads() == threads);  // the caller's setting stays
}
