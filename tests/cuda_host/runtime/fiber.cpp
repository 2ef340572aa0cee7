// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

#if defined(__x86_64__)
// Keeps the registers that a callee keeps, and the stack; so it looks like an ordinary call.
asm(R"(
.text
.p2align 4
.type cuda_host_switch, @function
cuda_host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_host_switch, .-cuda_host_switch
)");
extern "C" void cuda_host_switch(void** leave, void* enter);
#endif

namespace cuda_host {
namespace {

constexpr std::size_t stack_bytes = 128 << 10, page = 4096;
thread_local Fiber* starting = nullptr;

}  // namespace

void Fiber::start() { starting->body_(); }

Fiber::Fiber(std::size_t number, std::function<void()> body) : body_(std::move(body)) {
  stack_ = ::mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack_ == MAP_FAILED) throw std::bad_alloc();
  ::mprotect(stack_, page, PROT_NONE);  // an overflow is a fault
  const std::size_t room = stack_bytes - number % 16 * 192;
#if defined(__x86_64__)
  // As cuda_host_switch leaves a stack: six registers, and where to go; the entry of a function
  // finds its stack 8 off a multiple of 16.
  auto* top = reinterpret_cast<std::uintptr_t*>(static_cast<char*>(stack_) + room) - 2;
  *top = reinterpret_cast<std::uintptr_t>(&Fiber::start);
  top_ = top - 6;
#else
  ::getcontext(&context_);
  context_.uc_stack.ss_sp = static_cast<char*>(stack_) + page;
  context_.uc_stack.ss_size = room - page;
  ::makecontext(&context_, &Fiber::start, 0);
#endif
}

Fiber::~Fiber() {
  if (stack_ != nullptr) ::munmap(stack_, stack_bytes);
}

void Fiber::switch_to(Fiber& to) {
  starting = &to;
#if defined(__x86_64__)
  cuda_host_switch(&top_, to.top_);
#else
  ::swapcontext(&context_, &to.context_);
#endif
}

}  // namespace cuda_host
