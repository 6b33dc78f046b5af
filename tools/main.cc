// SPDX-License-Identifier: Apache-2.0
#include "tools/command.h"

int main(int argc, char** argv) { return tileops::tools::run_command(argc, argv); }
