#ifndef STAR_DEVICE_CASE_H
#define STAR_DEVICE_CASE_H

//! One case in device memory, each tensor in an allocation of its own, so that a stray access is seen.

#include "case_file.h"
#include "cdf_retain_kernel.h"

#include <cuda_runtime_api.h>
#include <stdexcept>
#include <string>

namespace star
{

inline void check(cudaError_t error)
{
    if (error != cudaSuccess)
    {
        throw std::runtime_error(std::string{"CUDA | got "} + cudaGetErrorString(error));
    }
}

//! Device memory for `count` numbers.
template <typename T>
class DeviceArray
{
public:
    explicit DeviceArray(size_t count)
    {
        check(cudaMalloc(&mData, count * sizeof(T)));
    }

    explicit DeviceArray(std::vector<T> const& values)
        : DeviceArray(values.size())
    {
        check(cudaMemcpy(mData, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    }

    DeviceArray(DeviceArray const&) = delete;
    DeviceArray& operator=(DeviceArray const&) = delete;

    ~DeviceArray()
    {
        cudaFree(mData);
    }

    T* data() const
    {
        return static_cast<T*>(mData);
    }

    //! The first `count` numbers.
    std::vector<T> read(size_t count) const
    {
        std::vector<T> values(count);
        check(cudaMemcpy(values.data(), mData, count * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }

private:
    void* mData{nullptr};
};

//! Inputs, outputs and workspace of one call.
struct DeviceCase
{
    explicit DeviceCase(Case const& source)
        : batch(source.batch)
        , score(source.score)
        , validCount(source.validCount)
        , keepIndex(source.score.size())
        , keepCount(source.validCount.size())
        , width(1)
        , workspace(cdfRetainWorkspaceSize(source.batch, source.patches) / sizeof(int32_t))
    {
    }

    //! What the call wrote, once the stream is done.
    Result read() const
    {
        int64_t const columns = width.read(1).front();
        return {columns, keepCount.read(batch), keepIndex.read(batch * columns)};
    }

    int64_t batch;
    DeviceArray<float> score;
    DeviceArray<int64_t> validCount;
    DeviceArray<int64_t> keepIndex;
    DeviceArray<int64_t> keepCount;
    DeviceArray<int64_t> width;
    DeviceArray<int32_t> workspace;
};

} // namespace star

#endif // STAR_DEVICE_CASE_H
