#ifndef STAR_OPERATOR_H
#define STAR_OPERATOR_H

//! A custom operator of ONNX Runtime out of a kernel class: its C API in few calls. Errors are exceptions here, and a status outside.

#include <onnxruntime_c_api.h>

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace star
{

//! The version of the C API in use, the first with KernelContext_ParallelFor. A runtime serves every version up to its own.
constexpr uint32_t kAPI_VERSION{17};
//! The first ONNX Runtime whose Attention looks at the number of an image's keys. 1.24 takes that input, and ignores it.
constexpr uint32_t kLEAST_RUNTIME{25};
static_assert(kAPI_VERSION <= ORT_API_VERSION, "ONNX Runtime's headers must be those of 1.17 or later");

//! An operator's input or output. Those behind the required ones may be missing.
struct Slot
{
    ONNXTensorElementDataType type;
    bool isOptional{false};
};

constexpr Slot kFLOATS{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT};
constexpr Slot kINTEGERS{ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64};
constexpr Slot kTRUTHS{ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL};
constexpr Slot kOPTIONAL_FLOATS{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true};
constexpr Slot kOPTIONAL_INTEGERS{ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, true};

//! What ONNX Runtime refused.
struct Refusal
{
    OrtStatus* status;
};

inline void check(OrtStatus* status)
{
    if (status != nullptr)
    {
        throw Refusal{status};
    }
}

//! Calls, and returns what failed as a status.
template <typename Call>
OrtStatus* statusOf(OrtApi const& api, Call const& call) noexcept
{
    try
    {
        call();
        return nullptr;
    }
    catch (Refusal const& refusal)
    {
        return refusal.status;
    }
    catch (std::exception const& error)
    {
        return api.CreateStatus(ORT_INVALID_ARGUMENT, error.what());
    }
}

//! Throws, unless what a kernel was given is what it is defined for.
inline void require(bool holds, char const* expected)
{
    if (!holds)
    {
        throw std::invalid_argument(expected);
    }
}

//! A node's attributes.
class Attributes
{
public:
    Attributes(OrtApi const& api, OrtKernelInfo const* info)
        : mApi(api)
        , mInfo(info)
    {
    }

    int64_t whole(char const* name) const
    {
        int64_t value;
        check(mApi.KernelInfoGetAttribute_int64(mInfo, name, &value));
        return value;
    }

    float real(char const* name) const
    {
        float value;
        check(mApi.KernelInfoGetAttribute_float(mInfo, name, &value));
        return value;
    }

private:
    OrtApi const& mApi;
    OrtKernelInfo const* mInfo;
};

//! A tensor that a node reads; `values` is nullptr where it is missing.
template <typename T>
struct Tensor
{
    T const* values{nullptr};
    std::vector<int64_t> shape;
};

//! One call of a node.
class Call
{
public:
    Call(OrtApi const& api, OrtKernelContext* context)
        : mApi(api)
        , mContext(context)
    {
    }

    template <typename T>
    Tensor<T> input(size_t index) const
    {
        Tensor<T> tensor;
        OrtValue const* value{nullptr};
        check(mApi.KernelContext_GetInput(mContext, index, &value));
        if (value == nullptr)
        {
            return tensor;
        }
        OrtTensorTypeAndShapeInfo* info{nullptr};
        size_t rank{0};
        check(mApi.GetTensorTypeAndShape(value, &info));
        check(mApi.GetDimensionsCount(info, &rank));
        tensor.shape.resize(rank);
        check(mApi.GetDimensions(info, tensor.shape.data(), rank));
        mApi.ReleaseTensorTypeAndShapeInfo(info);
        void* data{nullptr};
        check(mApi.GetTensorMutableData(const_cast<OrtValue*>(value), &data));
        tensor.values = static_cast<T const*>(data);
        return tensor;
    }

    //! nullptr where no node reads the output.
    template <typename T = int64_t>
    T* output(size_t index, std::initializer_list<int64_t> shape) const
    {
        OrtValue* value{nullptr};
        check(mApi.KernelContext_GetOutput(mContext, index, shape.begin(), shape.size(), &value));
        void* data{nullptr};
        if (value != nullptr)
        {
            check(mApi.GetTensorMutableData(value, &data));
        }
        return static_cast<T*>(data);
    }

    //! Works on images 0 to `count` - 1, on the threads of the session.
    template <typename Work>
    void forEach(int64_t count, Work const& work) const
    {
        auto const run = [](void* of, size_t image) { (*static_cast<Work const*>(of))(static_cast<int64_t>(image)); };
        check(mApi.KernelContext_ParallelFor(
            mContext, run, static_cast<size_t>(count), 0, const_cast<void*>(static_cast<void const*>(&work))));
    }

private:
    OrtApi const& mApi;
    OrtKernelContext* mContext;
};

//! \tparam Kernel Has kNAME, kINPUTS, kOUTPUTS, a constructor from Attributes and compute(Call const&).
template <typename Kernel>
struct Operator final : OrtCustomOp
{
    struct State
    {
        OrtApi const& api;
        Kernel const kernel;
    };

    Operator()
        : OrtCustomOp{}
    {
        using Self = OrtCustomOp const*;
        version = kAPI_VERSION;
        GetName = [](Self) { return Kernel::kNAME; };
        GetExecutionProviderType = [](Self) -> char const* { return nullptr; }; // the CPU
        GetInputTypeCount = [](Self) { return std::size(Kernel::kINPUTS); };
        GetInputType = [](Self, size_t index) { return Kernel::kINPUTS[index].type; };
        GetInputCharacteristic = [](Self, size_t index) { return characteristicOf(Kernel::kINPUTS[index]); };
        GetInputMemoryType = [](Self, size_t) { return OrtMemTypeDefault; };
        GetOutputTypeCount = [](Self) { return std::size(Kernel::kOUTPUTS); };
        GetOutputType = [](Self, size_t index) { return Kernel::kOUTPUTS[index].type; };
        GetOutputCharacteristic = [](Self, size_t index) { return characteristicOf(Kernel::kOUTPUTS[index]); };
        CreateKernelV2 = [](Self, OrtApi const* api, OrtKernelInfo const* info, void** kernel) {
            return statusOf(*api, [=] { *kernel = new State{*api, Kernel(Attributes(*api, info))}; });
        };
        KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
            auto const& state = *static_cast<State const*>(kernel);
            return statusOf(state.api, [&] { state.kernel.compute(Call(state.api, context)); });
        };
        KernelDestroy = [](void* kernel) { delete static_cast<State*>(kernel); };
    }

    static OrtCustomOpInputOutputCharacteristic characteristicOf(Slot const& slot)
    {
        return slot.isOptional ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
    }
};

} // namespace star

#endif // STAR_OPERATOR_H
