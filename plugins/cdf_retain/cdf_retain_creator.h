#ifndef STAR_CDF_RETAIN_CREATOR_H
#define STAR_CDF_RETAIN_CREATOR_H

#include <NvInferRuntime.h>

namespace star
{

//! Makes the plugin from its attributes, when a model is parsed and when an engine is loaded.
class CdfRetainCreator final : public nvinfer1::IPluginCreatorV3One
{
public:
    CdfRetainCreator() noexcept;

    //! \return The plugin, or nullptr, with a line in the log, unless the fields hold a mass in (0, 1], and a count if any.
    nvinfer1::IPluginV3* createPlugin(nvinfer1::AsciiChar const* name, nvinfer1::PluginFieldCollection const* fc,
        nvinfer1::TensorRTPhase phase) noexcept override;
    nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override;
    nvinfer1::AsciiChar const* getPluginName() const noexcept override;
    nvinfer1::AsciiChar const* getPluginVersion() const noexcept override;
    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override;

private:
    nvinfer1::PluginField const mFields[2];
    nvinfer1::PluginFieldCollection const mFieldNames;
};

} // namespace star

#endif // STAR_CDF_RETAIN_CREATOR_H
