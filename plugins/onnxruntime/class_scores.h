#ifndef STAR_CLASS_SCORES_H
#define STAR_CLASS_SCORES_H

//! The part that both choosing operators share: what a node says of its layer, and the fused scores of one image.

#include "operator.h"

#include <cstdint>
#include <vector>

namespace star
{

//! The attributes of a layer's scores.
struct Scoring
{
    int64_t heads;
    int64_t classTokens;
    int64_t prefix;
    float scale;
    float alpha;

    explicit Scoring(Attributes const& attributes);
};

//! The inputs of a layer's scores.
class ClassScores
{
public:
    //! Reads inputs 0 to 3: query and key, [batch, tokens, dim] or [batch, heads, tokens, channels]; weights, [positions]; positions
    //! of the patches, [batch, patches].
    ClassScores(Scoring const& scoring, Call const& call);

    int64_t batch() const;
    //! Tokens after the prefix, padding included.
    int64_t patches() const;
    //! Where patches stand in the image; nullptr where each is still in its place.
    int64_t const* positionsOf(int64_t image) const;
    //! Room that scores() needs, in floats.
    size_t room() const;
    //! The fused scores of an image's first `valid` patches, inside `room`.
    float* scores(int64_t image, int64_t valid, float* room) const;

private:
    Scoring const& mScoring;
    Tensor<float> const mQuery;
    Tensor<float> const mKey;
    Tensor<float> const mWeights;
    Tensor<int64_t> const mPositions;
};

//! Writes where the survivors stand in the image.
void writePositions(int64_t const* survivors, int64_t count, int64_t const* positions, int64_t* standing);

} // namespace star

#endif // STAR_CLASS_SCORES_H
