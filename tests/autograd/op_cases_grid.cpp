// SPDX-License-Identifier: Apache-2.0
// Images read at places, inside and outside of them, and the grids of affine maps.
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/grid_sample.h>

#include "op_cases.h"

namespace peal::test {
namespace {

struct Named {
  const char* name;
  GridMode mode;
};
constexpr Named modes[] = {{"bilinear", GridMode::bilinear},
                           {"nearest", GridMode::nearest},
                           {"bicubic", GridMode::bicubic}};
struct Padding {
  const char* name;
  GridPadding mode;
};
constexpr Padding paddings[] = {{"zeros", GridPadding::zeros},
                                {"border", GridPadding::border},
                                {"reflection", GridPadding::reflection}};

const char* python(bool value) { return value ? "True" : "False"; }

}  // namespace

std::vector<OpCase> grid_cases() {
  std::vector<OpCase> all;
  const auto sampled = [&](const Shape& x, const Shape& grid, const Named& mode,
                           const Padding& padding, bool aligned) {
    const GridSampleOptions options{mode.mode, padding.mode, aligned};
    all.push_back({concat("F.grid_sample(x[0], x[1], '", mode.name, "', '", padding.name, "', ",
                          python(aligned), ")"),
                   [options](const Tensors& in, const Tensors&) {
                     return grid_sample(in[0], in[1], options);
                   },
                   {{x}, {grid}}});
  };
  for (const bool aligned : {false, true}) {
    for (const Padding& padding : paddings) {
      for (const Named& mode : modes) {
        sampled({1, 2, 3, 4}, {1, 2, 3, 2}, mode, padding, aligned);
      }
      sampled({2, 3, 1, 2}, {2, 2, 1, 2}, modes[0], padding, aligned);
      sampled({2, 2, 4, 1}, {2, 1, 2, 2}, modes[2], padding, aligned);
      // Of which the images are too many for each element to be run twice.
      sampled({3, 5, 12, 9}, {3, 14, 10, 2}, modes[0], padding, aligned);
    }
    for (const Shape& size : {Shape{2, 1, 3, 4}, Shape{2, 3, 1, 1}, Shape{2, 2, 5, 1}}) {
      const std::string numbers =
          concat("(", size[0], ", ", size[1], ", ", size[2], ", ", size[3], ")");
      all.push_back(
          {concat("F.affine_grid(x[0], ", numbers, ", align_corners=", python(aligned), ")"),
           [size, aligned](const Tensors& in, const Tensors&) {
             return affine_grid(in[0], size, aligned);
           },
           {{{2, 2, 3}}}});
    }
  }
  all.push_back(
      {"F.grid_sample(x[0], F.affine_grid(x[1] * 0.5, (2, 3, 4, 5), align_corners=False), "
       "align_corners=False)",
       [](const Tensors& in, const Tensors&) {
         return grid_sample(in[0], affine_grid(in[1] * 0.5, {2, 3, 4, 5}));
       },
       {{{2, 3, 4, 3}}, {{2, 2, 3}}}});
  return all;
}

}  // namespace peal::test
