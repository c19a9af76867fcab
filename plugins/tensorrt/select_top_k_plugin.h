#ifndef STAR_SELECT_TOP_K_PLUGIN_H
#define STAR_SELECT_TOP_K_PLUGIN_H

#include "plugin_base.h"

namespace star
{

//! SelectTopK as a TensorRT layer: as many patches of each image, whatever the image, so that all shapes are static.
class SelectTopKPlugin final : public PluginBase<SelectTopKPlugin>
{
public:
    static constexpr char const* kNAME{"SelectTopK"};
    static constexpr char const* kTENSORS{"score; keep and rows"};
    static constexpr int32_t kNB_INPUTS{1};
    static constexpr int32_t kNB_OUTPUTS{2};
    static constexpr nvinfer1::DataType kTYPES[]{
        nvinfer1::DataType::kFLOAT, nvinfer1::DataType::kINT64, nvinfer1::DataType::kINT64};

    //! \param k Patches to keep, from 1 to kLARGEST_PATCHES.
    //! \param prefix Rows of tokens before those of patches, from 0 to kLARGEST_PATCHES.
    SelectTopKPlugin(int32_t k, int32_t prefix) noexcept;

    nvinfer1::IPluginV3* clone() noexcept override;

    // IPluginV3OneBuild
    int32_t configurePlugin(nvinfer1::DynamicPluginTensorDesc const* in, int32_t nbInputs,
        nvinfer1::DynamicPluginTensorDesc const* out, int32_t nbOutputs) noexcept override;
    int32_t getOutputShapes(nvinfer1::DimsExprs const* inputs, int32_t nbInputs, nvinfer1::DimsExprs const* shapeInputs,
        int32_t nbShapeInputs, nvinfer1::DimsExprs* outputs, int32_t nbOutputs,
        nvinfer1::IExprBuilder& exprBuilder) noexcept override;

    // IPluginV3OneRuntime
    int32_t onShapeChange(nvinfer1::PluginTensorDesc const* in, int32_t nbInputs, nvinfer1::PluginTensorDesc const* out,
        int32_t nbOutputs) noexcept override;
    int32_t enqueue(nvinfer1::PluginTensorDesc const* inputDesc, nvinfer1::PluginTensorDesc const* outputDesc,
        void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t stream) noexcept override;

private:
    int32_t const mK;
    int32_t const mPrefix;
};

//! Makes the plugin from its attributes, when a model is parsed and when an engine is loaded.
class SelectTopKCreator final : public CreatorBase<SelectTopKPlugin>
{
public:
    SelectTopKCreator() noexcept;

    //! \return The plugin, or nullptr, with a line in the log, unless the fields hold both numbers, in their ranges.
    nvinfer1::IPluginV3* createPlugin(nvinfer1::AsciiChar const* name, nvinfer1::PluginFieldCollection const* fc,
        nvinfer1::TensorRTPhase phase) noexcept override;
};

} // namespace star

#endif // STAR_SELECT_TOP_K_PLUGIN_H
