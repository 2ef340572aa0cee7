// SPDX-License-Identifier: Apache-2.0
// All of peal that a training program needs: tensors and their operations, models, DDP, data, and
// the job that knows which rank this is. A program that wants less includes peal/nn/nn.h,
// peal/comm/comm.h, peal/data/data.h or peal/autograd/ops/ops.h; one that wants the training loop
// too, peal/launch/training/trainer/trainer.h.
#pragma once

#include <peal/autograd/autocast.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/profile.h>
#include <peal/autograd/tape.h>
#include <peal/comm/comm.h>
#include <peal/data/data.h>
#include <peal/launch/job.h>
#include <peal/launch/processes.h>
#include <peal/launch/spawn.h>
#include <peal/nn/nn.h>
