// SPDX-License-Identifier: Apache-2.0
// Everything that users of the library include.
#pragma once

#include "tileops/checkpoint/moe_layer.h"
#include "tileops/core/dlpack.h"
#include "tileops/core/error.h"
#include "tileops/core/freeze.h"
#include "tileops/core/safetensors.h"
#include "tileops/core/stream.h"
#include "tileops/core/tensor.h"
#include "tileops/dispatch/backend.h"
#include "tileops/dispatch/target.h"
#include "tileops/moe.h"
#include "tileops/op/explain.h"
#include "tileops/op/op.h"
#include "tileops/op/trace.h"
#include "tileops/op/typed_op.h"
#include "tileops/ops/register.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"
