// SPDX-License-Identifier: Apache-2.0
// All of nn/ that a training program on one rank needs.
#pragma once

#include <peal/nn/amp/grad_scaler.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/functional.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/module.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/ema.h>
#include <peal/nn/optim/plateau.h>
#include <peal/nn/optim/scheduler.h>
#include <peal/nn/optim/sgd.h>
