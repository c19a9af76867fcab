#ifndef STAR_CDF_RETAIN_PLUGIN_H
#define STAR_CDF_RETAIN_PLUGIN_H

#include "plugin_base.h"

#include <cstddef>

namespace star
{

constexpr char const* kMASS_FIELD{"mass"};
constexpr char const* kWIDEST_FIELD{"widest"};

//! Where a model does not say how many patches the layer can keep.
constexpr int32_t kNO_WIDEST{0};

//! CdfRetain as a TensorRT layer: it declares shapes and types, checks them, and calls the kernel.
class CdfRetainPlugin final : public PluginBase<CdfRetainPlugin>
{
public:
    static constexpr char const* kNAME{"CdfRetain"};
    static constexpr char const* kTENSORS{"score and valid_count; keep_index, keep_count and width"};
    static constexpr int32_t kNB_INPUTS{2};
    static constexpr int32_t kNB_OUTPUTS{3};
    static constexpr nvinfer1::DataType kTYPES[]{nvinfer1::DataType::kFLOAT, nvinfer1::DataType::kINT64,
        nvinfer1::DataType::kINT64, nvinfer1::DataType::kINT64, nvinfer1::DataType::kINT64};

    //! \param mass The share of a row's sum to reach, in (0, 1].
    //! \param widest The most patches that a row can keep, from 1 to kLARGEST_PATCHES, or kNO_WIDEST.
    CdfRetainPlugin(float mass, int32_t widest) noexcept;

    nvinfer1::IPluginV3* clone() noexcept override;

    // IPluginV3OneBuild
    int32_t configurePlugin(nvinfer1::DynamicPluginTensorDesc const* in, int32_t nbInputs,
        nvinfer1::DynamicPluginTensorDesc const* out, int32_t nbOutputs) noexcept override;
    int32_t getOutputShapes(nvinfer1::DimsExprs const* inputs, int32_t nbInputs, nvinfer1::DimsExprs const* shapeInputs,
        int32_t nbShapeInputs, nvinfer1::DimsExprs* outputs, int32_t nbOutputs,
        nvinfer1::IExprBuilder& exprBuilder) noexcept override;
    size_t getWorkspaceSize(nvinfer1::DynamicPluginTensorDesc const* inputs, int32_t nbInputs,
        nvinfer1::DynamicPluginTensorDesc const* outputs, int32_t nbOutputs) const noexcept override;

    // IPluginV3OneRuntime
    int32_t onShapeChange(nvinfer1::PluginTensorDesc const* in, int32_t nbInputs, nvinfer1::PluginTensorDesc const* out,
        int32_t nbOutputs) noexcept override;
    int32_t enqueue(nvinfer1::PluginTensorDesc const* inputDesc, nvinfer1::PluginTensorDesc const* outputDesc,
        void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t stream) noexcept override;

private:
    float const mMass;
    int32_t const mWidest;
};

} // namespace star

#endif // STAR_CDF_RETAIN_PLUGIN_H
