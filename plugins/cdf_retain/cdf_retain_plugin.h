#ifndef STAR_CDF_RETAIN_PLUGIN_H
#define STAR_CDF_RETAIN_PLUGIN_H

#include <NvInferRuntime.h>
#include <cstddef>
#include <cstdint>

namespace star
{

constexpr char const* kPLUGIN_NAME{"CdfRetain"};
constexpr char const* kPLUGIN_VERSION{"1"};
constexpr char const* kPLUGIN_NAMESPACE{"star"};
constexpr char const* kMASS_FIELD{"mass"};
constexpr char const* kWIDEST_FIELD{"widest"};

//! Where a model does not say how many patches the layer can keep.
constexpr int32_t kNO_WIDEST{0};

//! CdfRetain as a TensorRT layer: it declares shapes and types, checks them, and calls the kernel.
class CdfRetainPlugin final : public nvinfer1::IPluginV3,
                              public nvinfer1::IPluginV3OneCore,
                              public nvinfer1::IPluginV3OneBuild,
                              public nvinfer1::IPluginV3OneRuntime
{
public:
    //! \param mass The share of a row's sum to reach, in (0, 1].
    //! \param widest The most patches that a row can keep, from 1 to kLARGEST_PATCHES, or kNO_WIDEST.
    CdfRetainPlugin(float mass, int32_t widest) noexcept;
    CdfRetainPlugin(CdfRetainPlugin const&) = delete;
    CdfRetainPlugin& operator=(CdfRetainPlugin const&) = delete;
    ~CdfRetainPlugin() override = default;

    // IPluginV3
    nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override;
    nvinfer1::IPluginV3* clone() noexcept override;

    // IPluginV3OneCore
    nvinfer1::AsciiChar const* getPluginName() const noexcept override;
    nvinfer1::AsciiChar const* getPluginVersion() const noexcept override;
    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override;

    // IPluginV3OneBuild
    int32_t getNbOutputs() const noexcept override;
    int32_t configurePlugin(nvinfer1::DynamicPluginTensorDesc const* in, int32_t nbInputs,
        nvinfer1::DynamicPluginTensorDesc const* out, int32_t nbOutputs) noexcept override;
    bool supportsFormatCombination(int32_t pos, nvinfer1::DynamicPluginTensorDesc const* inOut, int32_t nbInputs,
        int32_t nbOutputs) noexcept override;
    int32_t getOutputDataTypes(nvinfer1::DataType* outputTypes, int32_t nbOutputs, nvinfer1::DataType const* inputTypes,
        int32_t nbInputs) const noexcept override;
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
    nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext* context) noexcept override;
    nvinfer1::PluginFieldCollection const* getFieldsToSerialize() noexcept override;

private:
    float const mMass;
    int32_t const mWidest;
    nvinfer1::PluginField const mFields[2];
    nvinfer1::PluginFieldCollection const mFieldsToSerialize;
};

} // namespace star

#endif // STAR_CDF_RETAIN_PLUGIN_H
