#ifndef STAR_CDF_RETAIN_KERNEL_H
#define STAR_CDF_RETAIN_KERNEL_H

//! CdfRetain on a GPU, without TensorRT: any CUDA program can call it.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

namespace star
{

//! One call of the operator. All pointers are to device memory.
struct CdfRetainCall
{
    int32_t batch;
    int32_t patches; //!< N, at most kLARGEST_PATCHES.
    float mass;      //!< The share to reach, in (0, 1].

    float const* score;        //!< [batch, N]
    int64_t const* validCount; //!< [batch], each in [1, N]

    int64_t* keepIndex; //!< Room for [batch, N]; written as [batch, width], whose width is known only afterwards.
    int64_t* keepCount; //!< [batch]
    int64_t* width;     //!< []

    int32_t* workspace; //!< cdfRetainWorkspaceSize() bytes
};

//! Bytes of workspace that a call with these sizes, or smaller ones, needs.
size_t cdfRetainWorkspaceSize(int64_t batch, int64_t patches) noexcept;

//! Put the call on a stream: two kernels, no synchronization, so a CUDA graph can capture it.
//!
//! \return The error of the launch, or cudaErrorInvalidValue where the operator is not defined for such sizes.
cudaError_t launchCdfRetain(CdfRetainCall const& call, cudaStream_t stream) noexcept;

} // namespace star

#endif // STAR_CDF_RETAIN_KERNEL_H
