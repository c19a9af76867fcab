#ifndef STAR_CHOOSE_TOP_K_H
#define STAR_CHOOSE_TOP_K_H

#include "class_scores.h"

namespace star
{

//! STAR's choice in one layer: the k patches of the largest fused scores.
class ChooseTopK
{
public:
    static constexpr char const* kNAME{"ChooseTopK"};
    static constexpr Slot kINPUTS[]{kFLOATS, kFLOATS, kOPTIONAL_FLOATS, kOPTIONAL_INTEGERS};
    static constexpr Slot kOUTPUTS[]{kINTEGERS, kINTEGERS, kINTEGERS};

    explicit ChooseTopK(Attributes const& attributes);

    //! Outputs 0 to 2: the survivors, ascending, [batch, k]; the rows of tokens to take, the prefix first, [batch, prefix + k, 1]; where
    //! the survivors stand in the image, [batch, k].
    void compute(Call const& call) const;

private:
    Scoring const mScoring;
    int64_t const mCount;
};

} // namespace star

#endif // STAR_CHOOSE_TOP_K_H
