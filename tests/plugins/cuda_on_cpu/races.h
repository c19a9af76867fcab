#ifndef STAR_RACES_H
#define STAR_RACES_H

#include <cstddef>

namespace races
{

//! Note an access that the hardware makes in one step; two of them are no race.
void noteAtomic(void const* address, size_t bytes);

} // namespace races

#endif // STAR_RACES_H
