#ifndef STAR_CDF_RETAIN_CREATOR_H
#define STAR_CDF_RETAIN_CREATOR_H

#include "cdf_retain_plugin.h"

namespace star
{

//! Makes the plugin from its attributes, when a model is parsed and when an engine is loaded.
class CdfRetainCreator final : public CreatorBase<CdfRetainPlugin>
{
public:
    CdfRetainCreator() noexcept;

    //! \return The plugin, or nullptr, with a line in the log, unless the fields hold a mass in (0, 1], and a count if any.
    nvinfer1::IPluginV3* createPlugin(nvinfer1::AsciiChar const* name, nvinfer1::PluginFieldCollection const* fc,
        nvinfer1::TensorRTPhase phase) noexcept override;
};

} // namespace star

#endif // STAR_CDF_RETAIN_CREATOR_H
