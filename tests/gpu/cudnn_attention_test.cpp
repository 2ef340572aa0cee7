// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN on a GPU beside the own kernels and the CPU: that it serves what it should,
// that both keep the same numbers, so that one goes on where the other began, that a captured step
// replays it, and that a context which wants determinism gets the same bits. Where there is no
// Hopper, or the build lacks cuDNN's frontend, it only says so.
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/kernels/cuda/cudnn_attention.h>
#include <peal/autograd/kernels/cuda/handles.h>
#include <peal/autograd/ops/ops.h>

#include "both.h"

#include <future>
#include <string>
#include <utility>
#include <vector>

using namespace peal;
using namespace peal::test;
using cuda::Tokens;

namespace {

constexpr Device h100{DeviceType::cuda, 0};

struct CudnnCase {
  AttentionGeometry o;
  bool side_by_side;  // q, k and v in one tensor, as GPT's layers make them
};

const CudnnCase cudnn_cases[] = {
    {{2, 256, 256, 2, 64, true}, true},    {{2, 256, 256, 2, 64, false}, true},
    {{1, 300, 300, 3, 64, true}, true},    {{1, 300, 300, 3, 64, false}, true},
    {{1, 37, 37, 2, 128, true}, true},     {{2, 130, 200, 1, 64, false}, false},
    {{1, 200, 130, 2, 128, false}, false}, {{1, 1, 200, 2, 64, false}, false},
    {{1, 96, 96, 2, 40, true}, true},      {{1, 1024, 1024, 2, 64, true}, true},
};

// Whether it serves what has come often, as after the first 32 plans: what does not yet is left as
// it is.
template <class F>
bool is_served(const F& f) {
  for (int call = 0; call < 1000; ++call) {
    if (f()) return true;
  }
  return false;
}

// Forward by one, backward by one; the result, what is kept, and the gradients of q, k and v.
Tensors by(const CudnnCase& c, DType dtype, Device device, bool cudnn_forward,
           bool cudnn_backward) {
  const AttentionGeometry& o = c.o;
  const std::int64_t width = o.heads * o.width, row = c.side_by_side ? 3 * width : width;
  const Tensor y = Tensor::empty({o.batch, o.queries, width}, dtype, device);
  const Tensor sums = Tensor::empty({o.batch * o.heads, o.queries}, DType::f32, device);
  const Tensor dy = random(dtype, y.shape(), 9).to(device);
  Tensors x, dx;
  for (int i = 0; i < (c.side_by_side ? 1 : 3); ++i) {
    const Shape shape{o.batch, i == 0 ? o.queries : o.keys, row};
    x.push_back(random(dtype, shape, static_cast<unsigned>(i) + 1).to(device));
    dx.push_back(Tensor::empty(shape, dtype, device));
  }
  const auto part = [&](const Tensors& of, int i) {
    return c.side_by_side ? Tokens{of[0], row, i * width}
                          : Tokens{of[static_cast<std::size_t>(i)], row};
  };
  const Tokens q = part(x, 0), k = part(x, 1), v = part(x, 2), result{y, width}, grad{dy, width};
  const Tokens dq = part(dx, 0), dk = part(dx, 1), dv = part(dx, 2);
  if (cudnn_forward) {
    CHECK(is_served([&] { return cuda::cudnn_attention(o, result, sums, q, k, v); }));
  } else {
    cuda::fused_attention(o, result, sums, q, k, v);
  }
  if (cudnn_backward) {
    CHECK(is_served([&] {
      return cuda::cudnn_attention_backward(o, &dq, &dk, &dv, grad, result, sums, q, k, v);
    }));
  } else {
    cuda::fused_attention_backward(o, &dq, &dk, &dv, grad, result, sums, q, k, v);
  }
  Tensors all{y, sums};
  all.insert(all.end(), dx.begin(), dx.end());
  return all;
}

// With the plans of such threads before it, of which the first 32 are made soon, and not with those
// of the main thread, which other tests make.
template <class F>
void in_new_thread(const F& f) {
  std::async(std::launch::async, with_context([&] { f(); })).get();
}

bool is_asked() {
  const bool asked = cuda::asks_cudnn_attention(cudnn_cases[0].o, DType::bf16, h100);
  if (!asked) MESSAGE("cuDNN is not asked for attention here");
  return asked;
}

void compare_with_own(const CudnnCase& c, DType dtype) {
  const AttentionGeometry& o = c.o;
  CAPTURE(concat(dtype, " [", o.batch, ", ", o.queries, " of ", o.keys, ", ", o.heads, " x ",
                 o.width, o.causal ? "] causal" : "]", c.side_by_side ? " side by side" : ""));
  const Tensors expected = by(c, dtype, h100, false, false);
  const std::vector<std::pair<bool, bool>> passes = {{true, true}, {true, false}, {false, true}};
  for (const auto& by_cudnn : passes) {  // forward, backward
    CAPTURE(concat(by_cudnn.first, by_cudnn.second));
    const Tensors got = by(c, dtype, h100, by_cudnn.first, by_cudnn.second);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      CHECK(distance(got[i], expected[i]) <= (i == 1 ? 1e-4 : 1.5 * bound_of(dtype)));
    }
  }
}

int* new_number() { return new int{}; }

// The result of a layer and the gradient of its input.
Tensors layer(DType dtype, std::int64_t length, bool causal, Device device) {
  const Tensor qkv = random(dtype, {2, length, 3 * 2 * 64}, 1).to(device).detach();
  qkv.set_requires_grad();
  const Tensor y = self_attention(qkv, 2, causal);
  y.backward(random(dtype, y.shape(), 2).to(device));
  return {y.detach(), qkv.grad()};
}

}  // namespace

TEST_CASE("plans: what stays is kept where sizes keep changing, and goes on in the next thread") {
  struct Plan {
    int number = 0;
    bool keep = false;
    bool stays() const { return keep; }
  };
  cuda::PlanCache<1, Plan> plans;
  plans.get({0}, [](Plan& plan) { plan = {7, true}; });
  plans.get({1}, [](Plan& plan) { plan = {7, false}; });
  for (std::int64_t size = 2; size < 5000; ++size) plans.get({size}, [](Plan&) {});
  CHECK(plans.get({0}, [](Plan&) {}).number == 7);
  CHECK(plans.get({1}, [](Plan&) {}).number == 0);

  const auto of_a_thread = [](int index) {
    const Device device{DeviceType::cuda, index};
    return std::async(std::launch::async, cuda::handle_on<int*, new_number>, device).get();
  };
  const int* const first = of_a_thread(0);
  CHECK(of_a_thread(0) == first);
  CHECK(of_a_thread(1) != first);
}

TEST_CASE("attention by cuDNN: a captured step has its plans, and replays them") {
  if (!is_asked()) return;
  in_new_thread([] {
    constexpr std::int64_t length = 192, width = 2 * 64;
    const Tensor qkv = random(DType::bf16, {2, length, 3 * width}, 1).to(h100).detach();
    const Tensor expected = self_attention(random(DType::bf16, {2, length, 3 * width}, 7), 2, true);
    Graph graph(h100);
    Tensor y;
    for (int step = 0; step < 4; ++step) {
      if (step == 3) qkv.copy_(random(DType::bf16, qkv.shape(), 7).to(h100));
      graph.run([&] { y = self_attention(qkv, 2, true); });
    }
    REQUIRE(graph.captured());
    CHECK(distance(y, expected) <= bound_of(DType::bf16));

    const Tensor again = Tensor::empty(y.shape(), DType::bf16, h100),
                 sums = Tensor::empty({2 * 2, length}, DType::f32, h100);
    CHECK(cuda::cudnn_attention({2, length, length, 2, 64, true}, {again, width}, sums,
                                {qkv, 3 * width}, {qkv, 3 * width, width},
                                {qkv, 3 * width, 2 * width}));
    CHECK(doubles(again) == doubles(y));
  });
}

TEST_CASE("attention by cuDNN: results and gradients of a layer are the CPU's") {
  in_new_thread([] {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const bool causal : {true, false}) {
        for (const std::int64_t length : {128, 200}) {
          CAPTURE(concat(dtype, " ", length, causal ? " causal" : ""));
          const Tensors expected = layer(dtype, length, causal, Device{});
          Tensors got;
          for (int call = 0; call < 3; ++call) got = layer(dtype, length, causal, h100);
          CHECK(distance(got[0], expected[0]) <= bound_of(dtype));
          CHECK(distance(got[1], expected[1]) <= 1.25 * bound_of(dtype));
        }
      }
    }
  });
}

TEST_CASE("attention by cuDNN: gradients that nobody wants are left out") {
  if (!is_asked()) return;
  in_new_thread([] {
    const CudnnCase& c = cudnn_cases[0];
    const AttentionGeometry& o = c.o;
    const std::int64_t width = o.heads * o.width;
    const auto made = [&](unsigned seed) {
      return random(DType::bf16, {o.batch, o.queries, width}, seed).to(h100);
    };
    const Tensor q = made(1), k = made(2), v = made(3), dy = made(9);
    const Tensor y = Tensor::empty(q.shape(), DType::bf16, h100), dq = y.clone(), own = y.clone(),
                 sums = Tensor::empty({o.batch * o.heads, o.queries}, DType::f32, h100);
    const auto tokens = [&](const Tensor& x) { return Tokens{x, width}; };
    cuda::fused_attention(o, tokens(y), sums, tokens(q), tokens(k), tokens(v));
    const Tokens to_dq = tokens(dq), to_own = tokens(own);
    cuda::fused_attention_backward(o, &to_own, nullptr, nullptr, tokens(dy), tokens(y), sums,
                                   tokens(q), tokens(k), tokens(v));
    CHECK(is_served([&] {
      return cuda::cudnn_attention_backward(o, &to_dq, nullptr, nullptr, tokens(dy), tokens(y),
                                            sums, tokens(q), tokens(k), tokens(v));
    }));
    CHECK(distance(dq, own) <= 1.5 * bound_of(DType::bf16));
  });
}

TEST_CASE("attention by cuDNN: a context that wants determinism has the same bits at each run") {
  in_new_thread([] {
    context().deterministic = true;
    const Tensors first = layer(DType::bf16, 512, true, h100);
    for (int turn = 0; turn < 40; ++turn) {
      const Tensors again = layer(DType::bf16, 512, true, h100);
      CHECK(doubles(again[0]) == doubles(first[0]));
      CHECK(doubles(again[1]) == doubles(first[1]));
    }
  });
}

TEST_CASE("attention by cuDNN: as by the own kernels, and each goes on where the other began") {
  if (!is_asked()) return;
  // The last here, as it makes more plans than 32.
  for (const DType dtype : {DType::bf16, DType::f16}) {
    in_new_thread([dtype] {
      for (const CudnnCase& c : cudnn_cases) compare_with_own(c, dtype);
    });
  }
}
