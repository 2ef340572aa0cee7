// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

namespace peal::cpu {

bool max_pool2d(const Pool2dGeometry& o, const Tensor& y, const Tensor& x, const Tensor& index) {
  const std::int64_t in = o.in_height * o.in_width, out = o.out_height * o.out_width;
  return with_real(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    std::uint8_t* where = index.data<std::uint8_t>();
    parallel_for(o.planes, in, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        real_loops<T>().max_pool(o, to + plane * out, where + plane * out, from + plane * in);
      }
    });
  });
}

bool max_pool2d_backward(const Pool2dGeometry& o, const Tensor& dx, const Tensor& dy,
                         const Tensor& index) {
  const std::int64_t in = o.in_height * o.in_width, out = o.out_height * o.out_width;
  return with_real(dx.dtype(), [&]<class T>() {
    T* to = dx.data<T>();
    const T* from = dy.data<T>();
    const std::uint8_t* where = index.data<std::uint8_t>();
    parallel_for(o.planes, in, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        real_loops<T>().max_pool_backward(o, to + plane * in, from + plane * out,
                                          where + plane * out);
      }
    });
  });
}

}  // namespace peal::cpu
