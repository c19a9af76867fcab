#ifndef STAR_PLUGIN_BASE_H
#define STAR_PLUGIN_BASE_H

//! What the plugins of the library, and their creators, have in common. A `Layer` is the plugin itself: it has a kNAME,
//! the types of its tensors kTYPES, of which the first kNB_INPUTS are inputs, and their names kTENSORS for the log.

#include "log.h"

#include <NvInferRuntime.h>
#include <cstdint>
#include <cstring>

namespace star
{

constexpr char const* kPLUGIN_VERSION{"1"};
constexpr char const* kPLUGIN_NAMESPACE{"star"};

constexpr int32_t kOK{0};
constexpr int32_t kERROR{-1};

template <typename Layer>
class PluginBase : public nvinfer1::IPluginV3,
                   public nvinfer1::IPluginV3OneCore,
                   public nvinfer1::IPluginV3OneBuild,
                   public nvinfer1::IPluginV3OneRuntime
{
public:
    PluginBase(PluginBase const&) = delete;
    PluginBase& operator=(PluginBase const&) = delete;
    ~PluginBase() override = default;

    nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept final
    {
        switch (type)
        {
        case nvinfer1::PluginCapabilityType::kCORE: return static_cast<nvinfer1::IPluginV3OneCore*>(this);
        case nvinfer1::PluginCapabilityType::kBUILD: return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
        case nvinfer1::PluginCapabilityType::kRUNTIME: return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }

    nvinfer1::AsciiChar const* getPluginName() const noexcept final
    {
        return Layer::kNAME;
    }

    nvinfer1::AsciiChar const* getPluginVersion() const noexcept final
    {
        return kPLUGIN_VERSION;
    }

    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept final
    {
        return kPLUGIN_NAMESPACE;
    }

    int32_t getNbOutputs() const noexcept final
    {
        return Layer::kNB_OUTPUTS;
    }

    //! Each tensor has one type, and all are linear.
    bool supportsFormatCombination(int32_t pos, nvinfer1::DynamicPluginTensorDesc const* inOut, int32_t nbInputs,
        int32_t nbOutputs) noexcept final
    {
        bool const known = nbInputs == Layer::kNB_INPUTS && nbOutputs == Layer::kNB_OUTPUTS && pos >= 0
            && pos < Layer::kNB_INPUTS + Layer::kNB_OUTPUTS;
        return known && inOut[pos].desc.format == nvinfer1::TensorFormat::kLINEAR
            && inOut[pos].desc.type == Layer::kTYPES[pos];
    }

    int32_t getOutputDataTypes(nvinfer1::DataType* outputTypes, int32_t nbOutputs, nvinfer1::DataType const*,
        int32_t nbInputs) const noexcept final
    {
        if (!hasTensors(nbInputs, nbOutputs))
        {
            return kERROR;
        }
        for (int32_t i = 0; i < nbOutputs; ++i)
        {
            outputTypes[i] = Layer::kTYPES[nbInputs + i];
        }
        return kOK;
    }

    nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept final
    {
        return clone();
    }

    nvinfer1::PluginFieldCollection const* getFieldsToSerialize() noexcept final
    {
        return &mFieldsToSerialize;
    }

protected:
    PluginBase(nvinfer1::PluginField const& first, nvinfer1::PluginField const& second) noexcept
        : mFields{first, second}
        , mFieldsToSerialize{2, mFields}
    {
    }

    static bool hasTensors(int32_t nbInputs, int32_t nbOutputs)
    {
        bool const matches = nbInputs == Layer::kNB_INPUTS && nbOutputs == Layer::kNB_OUTPUTS;
        if (!matches)
        {
            logError("tensors | got %d inputs, %d outputs | need %s", nbInputs, nbOutputs, Layer::kTENSORS);
        }
        return matches;
    }

private:
    nvinfer1::PluginField const mFields[2];
    nvinfer1::PluginFieldCollection const mFieldsToSerialize;
};

template <typename Layer>
class CreatorBase : public nvinfer1::IPluginCreatorV3One
{
public:
    nvinfer1::PluginFieldCollection const* getFieldNames() noexcept final
    {
        return &mFieldNames;
    }

    nvinfer1::AsciiChar const* getPluginName() const noexcept final
    {
        return Layer::kNAME;
    }

    nvinfer1::AsciiChar const* getPluginVersion() const noexcept final
    {
        return kPLUGIN_VERSION;
    }

    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept final
    {
        return kPLUGIN_NAMESPACE;
    }

protected:
    CreatorBase(nvinfer1::PluginField const& first, nvinfer1::PluginField const& second) noexcept
        : mFields{first, second}
        , mFieldNames{2, mFields}
    {
    }

    //! The one number of a field, or nullptr.
    template <typename T>
    static T const* findOne(
        nvinfer1::PluginFieldCollection const* collection, char const* name, nvinfer1::PluginFieldType type)
    {
        for (int32_t i = 0; collection != nullptr && i < collection->nbFields; ++i)
        {
            nvinfer1::PluginField const& field = collection->fields[i];
            if (std::strcmp(field.name, name) == 0 && field.type == type && field.length == 1)
            {
                return static_cast<T const*>(field.data);
            }
        }
        return nullptr;
    }

private:
    nvinfer1::PluginField const mFields[2];
    nvinfer1::PluginFieldCollection const mFieldNames;
};

} // namespace star

#endif // STAR_PLUGIN_BASE_H
