#ifndef STAR_SELECT_TOP_K_KERNEL_H
#define STAR_SELECT_TOP_K_KERNEL_H

//! SelectTopK on a GPU, without TensorRT: any CUDA program can call it.

#include <cstdint>
#include <cuda_runtime_api.h>

namespace star
{

//! One call of the operator. All pointers are to device memory.
struct SelectTopKCall
{
    int32_t batch;
    int32_t patches; //!< N, at most kLARGEST_PATCHES.
    int32_t k;       //!< From 1 to N.
    int32_t prefix;  //!< Rows of tokens before those of patches.

    float const* score; //!< [batch, N]

    int64_t* keep; //!< [batch, k]
    int64_t* rows; //!< [batch, prefix + k, 1]
};

//! Put the call on a stream: one kernel, no workspace, no synchronization, so a CUDA graph can capture it.
//!
//! \return The error of the launch, or cudaErrorInvalidValue where the operator is not defined for such sizes.
cudaError_t launchSelectTopK(SelectTopKCall const& call, cudaStream_t stream) noexcept;

} // namespace star

#endif // STAR_SELECT_TOP_K_KERNEL_H
