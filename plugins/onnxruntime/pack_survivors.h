#ifndef STAR_PACK_SURVIVORS_H
#define STAR_PACK_SURVIVORS_H

#include "operator.h"

namespace star
{

//! Which rows stay when packed tokens lose patches: exporter/ops/packing.py.
class PackSurvivors
{
public:
    static constexpr char const* kNAME{"PackSurvivors"};
    static constexpr Slot kINPUTS[]{kINTEGERS, kINTEGERS, kINTEGERS};
    static constexpr Slot kOUTPUTS[]{kINTEGERS, kTRUTHS, kINTEGERS, kINTEGERS};

    explicit PackSurvivors(Attributes const& attributes);

    //! Inputs 0 to 2: slots [batch, tokens]; survivors [batch, k]; their number [batch]. Outputs 0 to 3: rows to take [total]; which
    //! places are no padding [batch, prefix + k]; the new slots, as large; the place of each row [total].
    void compute(Call const& call) const;

private:
    int64_t const mPrefix;
};

} // namespace star

#endif // STAR_PACK_SURVIVORS_H
