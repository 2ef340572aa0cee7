// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/held_signals.h>

#include <initializer_list>

namespace peal::cpu {

sigset_t hold_signals() {
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
    sigdelset(&all, fault);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  return before;
}

HeldSignals::HeldSignals() : before_(hold_signals()) {}

HeldSignals::~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace peal::cpu
