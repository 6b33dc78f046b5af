// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/launch_batch.h"

namespace tileops {
namespace {

constinit thread_local LaunchBatch* open_batch = nullptr;

}  // namespace

LaunchBatch* LaunchBatch::current() { return open_batch; }
void LaunchBatch::set_current(LaunchBatch* batch) { open_batch = batch; }

LaunchPause::LaunchPause() : paused_(LaunchBatch::current()) {
  submit_launches();
  LaunchBatch::set_current(nullptr);
}

LaunchPause::~LaunchPause() { LaunchBatch::set_current(paused_); }

}  // namespace tileops
