// SPDX-License-Identifier: Apache-2.0
// What is dropped does not depend on how a model is cut: of parts, of some heads' attention, and in
// a GPT's training.
#include <peal/autograd/ops/attention_of_heads.h>
#include <peal/tests/errors.h>

#include "tensor_parallel_ranks.h"

using namespace peal;
using namespace peal::testing;

TEST_CASE("dropout of parts drops what one process drops of the whole") {
  for (int world = 1; world <= 4; ++world) {
    CAPTURE(world);
    ranks(world, [world](const Group& group, int rank) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const int dim : {0, 1, -1}) {
          const Tensor whole = cast(spread_out({even, even, even}, 3), dtype);
          const nn::Cut how{whole.shape(), dim < 0 ? 2 : dim};
          const Tensor mine = nn::part_of(whole, how, rank, world);
          nn::Dropout plain(0.3);
          nn::ParallelDropout parallel(0.3, group, dim);
          whole.set_requires_grad();
          mine.set_requires_grad();
          const Generator before = context().generator;
          const Tensor all = plain(whole);
          const Generator after = context().generator;
          context().generator = before;
          const Tensor some = parallel(mine);
          PEAL_CHECK(context().generator.offset == after.offset, "ranks draw on elsewhere");
          CHECK(far(some.detach(), nn::part_of(all.detach(), how, rank, world)) == 0);
          sum(all).backward();
          sum(some).backward();
          CHECK(far(gradient_of(mine), nn::part_of(gradient_of(whole), how, rank, world)) == 0);
          parallel.eval();
          CHECK(far(parallel(mine).detach(), mine.detach()) == 0);
        }
      }
      nn::ParallelDropout parallel(0.3, group, 3);
      check_has(error_of([&] {
                  parallel(ones({2, 2}));
                }),
                "expected a dimension 3, got shape [2, 2]");
    });
  }
}

TEST_CASE("attention of some heads drops what that of all drops of these") {
  for (const std::int64_t length : {8, 5}) {  // words come by four
    for (const int world : {1, 2, 4}) {
      CAPTURE(length);
      CAPTURE(world);
      ranks(world, [=](const Group&, int rank) {
        const std::int64_t here = heads / world;
        Tensors whole, mine;
        for (const unsigned seed : {1U, 2U, 3U}) {
          whole.push_back(spread_out({3, length, 8}, seed));
          mine.push_back(nn::part_of(whole.back(), {whole.back().shape(), 2}, rank, world));
          whole.back().set_requires_grad();
          mine.back().set_requires_grad();
        }
        const Generator before = context().generator;
        const Tensor all =
            scaled_dot_product_attention(whole[0], whole[1], whole[2], heads, true, 0.4);
        const Generator after = context().generator;
        context().generator = before;
        const Tensor some =
            attention_of_heads(mine[0], mine[1], mine[2], here, true, 0.4, {rank * here, heads});
        PEAL_CHECK(context().generator.offset == after.offset, "ranks draw on elsewhere");
        CHECK(far(some.detach(), nn::part_of(all.detach(), {all.shape(), 2}, rank, world)) < 1e-12);
        sum(all * all).backward();
        sum(some * some).backward();
        for (std::size_t i = 0; i < 3; ++i) {
          const Tensor expected =
              nn::part_of(gradient_of(whole[i]), {whole[i].shape(), 2}, rank, world);
          CHECK(far(gradient_of(mine[i]), expected) < 1e-12);
        }
      });
    }
  }
}

TEST_CASE("with dropout, too, a cut GPT is one process") {
  const auto made = [] {
    nn::GptSettings settings{vocabulary, 8, heads, 2, 8};
    settings.embd_pdrop = settings.attn_pdrop = settings.resid_pdrop = 0.1;
    manual_seed(7);
    nn::GPT gpt(settings);
    gpt.to(DType::f64);
    return gpt;
  };
  for (const std::int64_t length :
       {8, 7}) {  // of a sequence that can be cut, and of one that cannot
    const auto train = [&](nn::Module model, const NamedTensors& trained) {
      nn::AdamW optimizer(trained, adam);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const Batch batch = tokens_of(step);
        loss_of(model, {slice(batch.x, 1, 0, length), slice(batch.y, 1, 0, length)}).backward();
        optimizer.step();
      }
      return context().generator.offset;  // where it draws on
    };
    const nn::GPT one = made();
    const std::uint64_t after = train(one, one.named_parameters());
    for (const int world : {1, 2, 4}) {
      for (const bool sequence : {false, true}) {
        if (sequence && length % world != 0) continue;
        CAPTURE(length);
        CAPTURE(world);
        CAPTURE(sequence);
        ranks(world, [&](const Group& group, int) {
          nn::TensorParallel tp = nn::parallelize_module(made(), group, plan(true, sequence));
          PEAL_CHECK(train(tp, tp.named_parameters()) == after, "ranks draw on elsewhere");
          CHECK(difference(tp.state_dict(), one.state_dict()) < 1e-10);
        });
      }
    }
  }
}

TEST_CASE("a cut GPT that drops weights of attention makes no text with a cache") {
  nn::GptSettings settings{vocabulary, 8, heads, 2, 8};
  settings.attn_pdrop = 0.1;
  ranks(2, [&](const Group& group, int) {
    manual_seed(7);
    nn::GPT gpt(settings);
    nn::parallelize_module(gpt, group, plan(true));
    const Tensor tokens = slice(tokens_of(0).x, 1, 0, 3);
    const NoGrad guard;
    nn::GptCache cache;
    check_has(error_of([&] { gpt.next(tokens, &cache); }), "eval() the model before it makes text");
    gpt.eval();
    nn::GptCache fresh;
    CHECK(gpt.next(tokens, &fresh).shape() == Shape{4, vocabulary});
  });
}
