// SPDX-License-Identifier: Apache-2.0
// Transposed convolutions, those of volumes, padding by words, inputs without a batch, unfold and
// fold.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

std::string text(std::int64_t value) { return concat(value); }
std::string text(const Pair& p) { return concat("(", p[0], ", ", p[1], ")"); }
std::string text(const Triple& t) { return concat("(", t[0], ", ", t[1], ", ", t[2], ")"); }

template <class Options>
struct Case {
  Shape x, weight;
  Options o;
};

template <class Options, class Op>
void add_transposed(std::vector<OpCase>& all, const std::string& name, Op op,
                    const std::vector<Case<Options>>& cases) {
  for (const Case<Options>& c : cases) {
    all.push_back(
        {concat("F.", name, "(x[0], x[1], x[2], ", text(c.o.stride), ", ", text(c.o.padding), ", ",
                text(c.o.output_padding), ", ", c.o.groups, ", ", text(c.o.dilation), ")"),
         [op, o = c.o](const Tensors& x, const Tensors&) { return op(x[0], x[1], x[2], o); },
         {{c.x}, {c.weight}, {{c.weight[1] * c.o.groups}}}});
  }
}

void add_transposed(std::vector<OpCase>& all) {
  add_transposed<ConvTranspose1dOptions>(
      all, "conv_transpose1d", conv_transpose1d,
      {{{2, 3, 5}, {3, 2, 3}, {}},
       {{4, 5}, {4, 1, 3}, {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2}},
       {{1, 2, 4}, {2, 3, 2}, {.padding = 1, .output_padding = 2, .dilation = 3}}});
  add_transposed<ConvTranspose2dOptions>(
      all, "conv_transpose2d", conv_transpose2d,
      {{{2, 3, 3, 4}, {3, 2, 3, 2}, {}},
       {{1, 4, 4, 3}, {4, 2, 4, 4}, {.stride = 2, .padding = 1}},
       {{2, 4, 2, 3}, {4, 1, 3, 3}, {{2, 3}, {1, 0}, {1, 2}, 2, 1}},
       {{3, 2, 3}, {3, 2, 2, 3}, {.stride = {1, 2}, .output_padding = {0, 1}, .dilation = {2, 1}}},
       {{1, 2, 3, 2}, {2, 2, 2, 2}, {.padding = {1, 0}, .output_padding = {1, 2}, .dilation = 3}},
       {{18, 16, 3, 3}, {16, 16, 4, 4}, {.stride = 2, .padding = 1}}});
  add_transposed<ConvTranspose3dOptions>(
      all, "conv_transpose3d", conv_transpose3d,
      {{{1, 2, 2, 3, 2}, {2, 3, 2, 2, 3}, {}},
       {{4, 2, 2, 2}, {4, 1, 3, 2, 3}, {{2, 1, 2}, {1, 0, 1}, {1, 0, 1}, 2, 1}},
       {{1, 2, 2, 2, 2},
        {2, 1, 2, 2, 2},
        {.padding = 1, .output_padding = {1, 0, 1}, .dilation = 2}}});
}

void add_volumes(std::vector<OpCase>& all) {
  for (const Case<Conv3dOptions>& c : std::initializer_list<Case<Conv3dOptions>>{
           {{1, 2, 3, 4, 3}, {3, 2, 2, 3, 2}, {}},
           {{2, 1, 3, 2, 3}, {2, 1, 3, 1, 2}, {.stride = {1, 2, 1}, .padding = {1, 0, 1}}},
           {{4, 3, 3, 4},
            {2, 2, 2, 2, 2},
            {.stride = {2, 1, 1}, .dilation = {1, 1, 2}, .groups = 2}},
           {{1, 2, 4, 2, 2}, {2, 2, 1, 1, 1}, {.stride = 2}},
           {{1, 3, 2, 2, 2}, {4, 3, 1, 2, 1}, {}}}) {
    all.push_back(
        {concat("F.conv3d(x[0], x[1], x[2], ", text(c.o.stride), ", ", text(c.o.padding), ", ",
                text(c.o.dilation), ", ", c.o.groups, ")"),
         [o = c.o](const Tensors& x, const Tensors&) { return conv3d(x[0], x[1], x[2], o); },
         {{c.x}, {c.weight}, {{c.weight[0]}}}});
  }
  all.push_back({"F.conv3d(x[0], x[1], padding='same', dilation=(1, 2, 1))",
                 [](const Tensors& x, const Tensors&) {
                   return conv3d(x[0], x[1], {}, {.padding = "same", .dilation = {1, 2, 1}});
                 },
                 {{{1, 2, 3, 4, 3}}, {{2, 2, 2, 2, 3}}}});
}

void add_words(std::vector<OpCase>& all) {
  for (const Shape& kernel : {Shape{3, 2, 3, 3}, Shape{3, 2, 2, 3}, Shape{3, 2, 4, 2}}) {
    all.push_back({"F.conv2d(x[0], x[1], x[2], padding='same', dilation=(1, 3))",
                   [](const Tensors& x, const Tensors&) {
                     return conv2d(x[0], x[1], x[2], {.padding = "same", .dilation = {1, 3}});
                   },
                   {{{2, 2, 4, 5}}, {kernel}, {{3}}}});
  }
  all.push_back({"F.conv2d(x[0], x[1], padding='valid', stride=2)",
                 [](const Tensors& x, const Tensors&) {
                   return conv2d(x[0], x[1], {}, {.stride = 2, .padding = "valid"});
                 },
                 {{{3, 5, 4}}, {{2, 3, 2, 3}}}});
  for (const std::int64_t kernel : {3, 4}) {
    all.push_back({"F.conv1d(x[0], x[1], padding='same', dilation=2)",
                   [](const Tensors& x, const Tensors&) {
                     return conv1d(x[0], x[1], {}, {.padding = "same", .dilation = 2});
                   },
                   {{{2, 2, 7}}, {{3, 2, kernel}}}});
  }
  all.push_back(
      {"F.conv1d(x[0], x[1], padding=1)",
       [](const Tensors& x, const Tensors&) { return conv1d(x[0], x[1], {}, {.padding = 1}); },
       {{{2, 5}}, {{3, 2, 3}}}});
}

void add_folds(std::vector<OpCase>& all) {
  const auto add = [&](std::string torch, const Shape& shape, auto op) {
    all.push_back({std::move(torch) + " * 2",
                   [op](const Tensors& x, const Tensors&) { return op(x[0]) * 2.0; },
                   {{shape}}});
  };
  const UnfoldOptions o{.dilation = {1, 2}, .padding = {1, 0}, .stride = {2, 1}};
  const std::string options = ", dilation=(1, 2), padding=(1, 0), stride=(2, 1))";
  add("F.unfold(x[0], 2)", {2, 3, 3, 4}, [](const Tensor& x) { return unfold(x, 2); });
  add("F.unfold(x[0], (3, 2)" + options, {2, 2, 4, 5}, [o](const Tensor& x) {
    return unfold(x, {3, 2}, o);
  });
  add("F.unfold(x[0], 2)", {3, 3, 4}, [](const Tensor& x) { return unfold(x, 2); });
  add("F.fold(x[0], (3, 4), 2)", {2, 8, 6}, [](const Tensor& x) { return fold(x, {3, 4}, 2); });
  add("F.fold(x[0], (4, 5), (3, 2)" + options, {12, 6}, [o](const Tensor& x) {
    return fold(x, {4, 5}, {3, 2}, o);
  });
  add("x[0].unfold(1, 3, 2)", {2, 8, 3}, [](const Tensor& x) { return unfold(x, 1, 3, 2); });
  add("x[0].unfold(-1, 2, 1)", {3, 4}, [](const Tensor& x) { return unfold(x, -1, 2, 1); });
}

}  // namespace

std::vector<OpCase> convolution_cases() {
  std::vector<OpCase> all;
  add_transposed(all);
  add_volumes(all);
  add_words(all);
  add_folds(all);
  return all;
}

}  // namespace peal::test
