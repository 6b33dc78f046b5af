// SPDX-License-Identifier: Apache-2.0
// A job on a layer of a checkpoint.
#pragma once

#include "tools/job.h"

namespace tileops::tools {

/// Fills a job's inputs and the parameters that the layer has; those in `job.params` come first.
/// The file of hidden states holds `hidden` [..., H], and what should come of it: `expected`, the
/// whole block's output, or expected.<output>.
/// Errors: kIo (open_moe_layer's; the file), kValue (an op that is no layer; a tensor that it
/// lacks).
void read_checkpoint_job(const JobOptions& options, const spec::Entry& entry, Job& job);

}  // namespace tileops::tools
