#ifndef STAR_RETAIN_H
#define STAR_RETAIN_H

#include "class_scores.h"

namespace star
{

//! a-STAR's choice from scores, bit for bit that of exporter/ops/cdf_retain/reference.py.
class CdfRetain
{
public:
    static constexpr char const* kNAME{"CdfRetain"};
    static constexpr Slot kINPUTS[]{kFLOATS, kINTEGERS};
    static constexpr Slot kOUTPUTS[]{kINTEGERS, kINTEGERS, kINTEGERS};

    explicit CdfRetain(Attributes const& attributes);

    //! Outputs 0 to 2: each row's survivors, ascending, then zeros, [batch, width]; their number, [batch]; the width, [].
    void compute(Call const& call) const;

private:
    float const mMass;
};

//! a-STAR's choice in one layer: the fused scores and CdfRetain in one.
class ChooseByMass
{
public:
    static constexpr char const* kNAME{"ChooseByMass"};
    static constexpr Slot kINPUTS[]{kFLOATS, kFLOATS, kOPTIONAL_FLOATS, kOPTIONAL_INTEGERS, kOPTIONAL_INTEGERS};
    static constexpr Slot kOUTPUTS[]{kINTEGERS, kINTEGERS, kINTEGERS};

    explicit ChooseByMass(Attributes const& attributes);

    //! Input 4 is the number of each image's valid patches, [batch]; without it, all are. Outputs 0 to 2: as CdfRetain's first two;
    //! where the survivors stand in the image, [batch, width].
    void compute(Call const& call) const;

private:
    Scoring const mScoring;
    float const mMass;
};

} // namespace star

#endif // STAR_RETAIN_H
