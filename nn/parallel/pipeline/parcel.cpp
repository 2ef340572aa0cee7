// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/pipeline/parcel.h>

#include <span>
#include <vector>

namespace peal::nn {
namespace {

// The call, whether a gradient is wanted, and the tensor's type, dimensions and sizes.
constexpr std::int64_t header_words = 6 + Shape::max_dims;
constexpr std::int64_t no_tensor = -1;  // in the place of dimensions

}  // namespace

std::string in_words(const PipeCall& call) {
  constexpr const char* names[] = {"evaluate()", "step()", "forward()"};
  return concat(names[static_cast<std::size_t>(call.what)], " of ", call.rows, " rows, its call ",
                call.number);
}

Tensor empty_header() { return Tensor::zeros({header_words}, DType::i64, Device{}); }

Tensor header_of(const Parcel& parcel, const PipeCall& call) {
  std::vector<std::int64_t> words{call.number, static_cast<std::int64_t>(call.what), call.rows,
                                  parcel.wanted ? 1 : 0};
  if (parcel.tensor.defined()) {
    words.push_back(static_cast<std::int64_t>(parcel.tensor.dtype()));
    words.push_back(parcel.tensor.dim());
    for (const std::int64_t size : parcel.tensor.shape()) words.push_back(size);
  } else {
    words.insert(words.end(), {0, no_tensor});
  }
  words.resize(header_words);
  return Tensor::from(words, {header_words}, Device{});
}

PipeCall call_of(const Tensor& header) {
  const auto* words = header.data<std::int64_t>();
  return {words[0], static_cast<PipeCall::What>(words[1]), words[2]};
}

Parcel parcel_of(const Tensor& header) {
  const auto* words = header.data<std::int64_t>();
  if (words[5] == no_tensor) return {{}, words[3] != 0};
  const Shape shape(std::span(words + 6, static_cast<std::size_t>(words[5])));
  return {Tensor::empty(shape, static_cast<DType>(words[4]), Device{}), words[3] != 0};
}

namespace {

bool has_elements(const Tensor& tensor) { return tensor.defined() && tensor.numel() > 0; }

}  // namespace

Tensor broadcast_tensor(const comm::ProcessGroup& group, const Tensor& mine, int root,
                        const comm::Label& label) {
  const bool here = root == group.rank();
  const Tensor header = here ? header_of({mine, false}, {}) : empty_header();
  group.broadcast(header.view(), root, label).wait();
  const Tensor all = here ? mine : parcel_of(header).tensor;
  if (has_elements(all)) group.broadcast(all.view(), root, label).wait();
  return all;
}

void send_tensor(const comm::ProcessGroup& group, const Tensor& tensor, int to) {
  group.send(header_of({tensor, false}, {}).view(), to).wait();
  if (has_elements(tensor)) group.send(tensor.view(), to, 1).wait();
}

Tensor recv_tensor(const comm::ProcessGroup& group, int from) {
  const Tensor header = empty_header();
  group.recv(header.view(), from).wait();
  const Tensor tensor = parcel_of(header).tensor;
  if (has_elements(tensor)) group.recv(tensor.view(), from, 1).wait();
  return tensor;
}

}  // namespace peal::nn
