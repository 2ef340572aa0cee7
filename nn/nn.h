// SPDX-License-Identifier: Apache-2.0
// All of nn/ that a training program needs, on one rank or with DistributedDataParallel on many.
#pragma once

#include <peal/nn/amp/grad_scaler.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/functional.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/metrics/regression.h>
#include <peal/nn/models/alexnet.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/models/tabular.h>
#include <peal/nn/models/vgg.h>
#include <peal/nn/models/xresnet.h>
#include <peal/nn/module.h>
#include <peal/nn/optim/adafactor.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/ema.h>
#include <peal/nn/optim/large_batch.h>
#include <peal/nn/optim/lbfgs.h>
#include <peal/nn/optim/plateau.h>
#include <peal/nn/optim/rules.h>
#include <peal/nn/optim/scheduler.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/nn/parallel/data_parallel.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/local_sgd.h>
#include <peal/nn/parallel/power_sgd.h>
#include <peal/nn/parallel/sync_batch_norm.h>
