// The CUDA runtime and its execution model on the CPU, so that the program's CUDA sources compile
// with g++ and run on any machine. This is an independent implementation, written from CUDA's
// documentation.
//
//  - emulation/types.h: keywords (__global__, __shared__, ...) and vector types.
//  - emulation/execution.h: threadIdx and similar variables, barriers, warp operations, and the
//    hook for warp-wide operations that C++ cannot express:
//      emulation::warp_collective(input, output, compute): every lane of a warp passes `input`;
//      when all 32 have arrived, compute(span of 32 inputs, span of 32 outputs) runs once; then
//      each lane finds its result in `output`.
//  - emulation/device_functions.h: atomics and intrinsics.
//  - emulation/runtime_api.h, emulation/launch.h: the runtime's functions.
//  - emulation/control.h: controls for tests (order of threads, failures, number of devices).
// tests/emulation/README.md explains the limits of the emulation.
#pragma once

#include "emulation/control.h"
#include "emulation/device_functions.h"
#include "emulation/execution.h"
#include "emulation/launch.h"
#include "emulation/runtime_api.h"
#include "emulation/types.h"
