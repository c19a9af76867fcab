#ifndef STAR_CUDA_ON_CPU_RUNTIME_API_H
#define STAR_CUDA_ON_CPU_RUNTIME_API_H

//! As much of CUDA as the kernels need to run on a CPU, for tests where there is no GPU. fibers.h does the work.

#include "fibers.h"
#include "races.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __shared__ static __attribute__((section("shared")))

using cudaStream_t = void*;

enum cudaError_t
{
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
};

struct dim3
{
    dim3(uint32_t width = 1)
        : x(width)
    {
    }

    uint32_t x;
};

struct cudaLaunchConfig_t
{
    dim3 gridDim;
    dim3 blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
};

struct ThreadIndex
{
    uint32_t& x;
};

inline ThreadIndex threadIdx{gThreadIndex};
inline dim3 blockIdx;
inline dim3 blockDim;

using std::max;
using std::min;

inline int32_t __popc(uint32_t bits)
{
    return __builtin_popcount(bits);
}

inline uint32_t __float_as_uint(float value)
{
    uint32_t bits{};
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

inline float __uint_as_float(uint32_t bits)
{
    float value{};
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

// No other thread goes on within an atomic operation: its accesses are noted as one, before it.
template <typename T>
__attribute__((no_sanitize("thread"))) void atomicMax(T* target, T value)
{
    races::noteAtomic(target, sizeof(T));
    *target = *target > value ? *target : value;
}

template <typename T>
__attribute__((no_sanitize("thread"))) void atomicAdd(T* target, T value)
{
    races::noteAtomic(target, sizeof(T));
    *target += value;
}

inline void __syncthreads()
{
    fibers::waitForBlock();
}

inline uint32_t __reduce_max_sync(uint32_t, uint32_t value)
{
    return fibers::waitForWarp(value, [](uint32_t reduced, uint32_t other, int32_t) { return max(reduced, other); });
}

inline uint32_t __reduce_add_sync(uint32_t, uint32_t value)
{
    return fibers::waitForWarp(value, [](uint32_t reduced, uint32_t other, int32_t) { return reduced + other; });
}

inline uint32_t __ballot_sync(uint32_t, bool value)
{
    return fibers::waitForWarp(
        value ? 1 : 0, [](uint32_t reduced, uint32_t other, int32_t lane) { return reduced | other << lane; });
}

template <typename Argument>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* config, void (*kernel)(Argument), Argument const& argument)
{
    blockDim = config->blockDim;
    for (blockIdx.x = 0; blockIdx.x < config->gridDim.x; ++blockIdx.x)
    {
        fibers::runBlock(config->blockDim.x, config->dynamicSmemBytes, [&]() { kernel(Argument(argument)); });
    }
    return cudaSuccess;
}

#endif // STAR_CUDA_ON_CPU_RUNTIME_API_H
