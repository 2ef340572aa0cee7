// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/walk.h>

#include <utility>

namespace peal::autograd {

Tensors grad(const Tensors& outputs, const Tensors& inputs, const GradOptions& options) {
  PEAL_CHECK(options.grad_outputs.empty() || options.grad_outputs.size() == outputs.size(),
             "grad: expected a gradient for each of ", outputs.size(), " outputs, or none, got ",
             options.grad_outputs.size());
  if (context().grad_enabled && !options.create_graph) check_not_recorded("grad");
  Wanted wanted(inputs);
  {
    const GradMode recorded(options.create_graph);
    const Autocast as_recorded(DType::bf16, false);
    std::vector<Root> roots;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      PEAL_CHECK(outputs[i].requires_grad(), "grad: output ", i, " of shape ", outputs[i].shape(),
                 " needs no gradient: nothing it was made from does, or it was made under NoGrad");
      const Tensor& given = options.grad_outputs.empty() ? Tensor() : options.grad_outputs[i];
      roots.push_back({outputs[i], seed_of("grad", outputs[i], given)});
    }
    Walk(options.retain_graph, options.create_graph, &wanted).run(std::move(roots));
    wanted.part();
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    PEAL_CHECK(options.allow_unused || wanted.grads[i].defined(),
               "grad: no output depends on input ", i, " of shape ", inputs[i].shape(),
               "; pass allow_unused where that is meant");
  }
  return std::move(wanted.grads);
}

}  // namespace peal::autograd
