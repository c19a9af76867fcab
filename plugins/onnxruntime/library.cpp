//! The entry points: ONNX Runtime's, and the least version of it.

#include "choose_top_k.h"
#include "pack_survivors.h"
#include "retain.h"

#define STAR_VISIBLE extern "C" __attribute__((visibility("default")))

STAR_VISIBLE int32_t starOpsLeastRuntime()
{
    return static_cast<int32_t>(star::kLEAST_RUNTIME);
}

STAR_VISIBLE OrtStatus* RegisterCustomOps(OrtSessionOptions* options, OrtApiBase const* base)
{
    static star::Operator<star::ChooseTopK> chooseTopK;
    static star::Operator<star::ChooseByMass> chooseByMass;
    static star::Operator<star::CdfRetain> cdfRetain;
    static star::Operator<star::PackSurvivors> packSurvivors;
    OrtApi const* const api = base->GetApi(star::kAPI_VERSION);
    if (api == nullptr)
    {
        return nullptr; // A runtime that is too old to be told: it then finds no operator.
    }
    return star::statusOf(*api, [&] {
        star::require(base->GetApi(star::kLEAST_RUNTIME) != nullptr, "ONNX Runtime 1.25 or later");
        OrtCustomOpDomain* domain{nullptr};
        star::check(api->CreateCustomOpDomain("star", &domain));
        std::initializer_list<OrtCustomOp const*> const all{&chooseTopK, &chooseByMass, &cdfRetain, &packSurvivors};
        for (OrtCustomOp const* op : all)
        {
            star::check(api->CustomOpDomain_Add(domain, op));
        }
        star::check(api->AddCustomOpDomain(options, domain)); // Domains live as long as the process.
    });
}
