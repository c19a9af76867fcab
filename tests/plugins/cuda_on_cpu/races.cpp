//! Races within a block: two threads touch the same word between two barriers, and one of them writes.
//!
//! The kernels are compiled with -fsanitize=thread, which calls a function before every access to memory; these are
//! ours, in place of the sanitizer's. Before each access any other thread of the block may go on. A collective of a
//! warp orders no memory, so it is no barrier here.

#include "races.h"

#include "fibers.h"

#include <cstdint>
#include <unordered_map>

namespace races
{
namespace
{

constexpr size_t kWORD{4};
constexpr int32_t kNOBODY{-1};
constexpr int32_t kSEVERAL{-2};

enum class Access
{
    kREAD,
    kWRITE,
    kATOMIC,
};

//! Who touched a word since the last barrier.
struct Word
{
    uint64_t epoch{0};
    int32_t reader{kNOBODY};
    int32_t writer{kNOBODY};
    int32_t atomic{kNOBODY};
};

std::unordered_map<uintptr_t, Word> gWords;
int64_t gRaces{0};

bool isForeign(int32_t user, int32_t thread)
{
    return user != kNOBODY && user != thread;
}

void add(int32_t& user, int32_t thread)
{
    user = isForeign(user, thread) ? kSEVERAL : thread;
}

void noteWord(uintptr_t index, Access access)
{
    auto const thread = static_cast<int32_t>(fibers::current());
    Word& word = gWords[index];
    if (word.epoch != fibers::epoch())
    {
        word = Word{fibers::epoch()};
    }
    bool const afterWrite = isForeign(word.writer, thread);
    bool const afterRead = access != Access::kREAD && isForeign(word.reader, thread);
    bool const afterAtomic = access != Access::kATOMIC && isForeign(word.atomic, thread);
    gRaces += afterWrite || afterRead || afterAtomic ? 1 : 0;
    add(access == Access::kREAD ? word.reader : access == Access::kWRITE ? word.writer : word.atomic, thread);
}

void note(void const* address, size_t bytes, Access access)
{
    if (!fibers::isInBlock())
    {
        return;
    }
    auto const begin = reinterpret_cast<uintptr_t>(address);
    for (uintptr_t index = begin / kWORD; index <= (begin + bytes - 1) / kWORD; ++index)
    {
        noteWord(index, access);
    }
    fibers::mayGiveWay();
}

} // namespace

void noteAtomic(void const* address, size_t bytes)
{
    note(address, bytes, Access::kATOMIC);
}

} // namespace races

//! Races since the last call.
extern "C" int64_t takeRaces()
{
    int64_t const races = races::gRaces;
    races::gRaces = 0;
    races::gWords.clear();
    return races;
}

#define STAR_ACCESS(BYTES)                                                                                             \
    extern "C" void __tsan_read##BYTES(void* address)                                                                  \
    {                                                                                                                  \
        races::note(address, BYTES, races::Access::kREAD);                                                             \
    }                                                                                                                  \
    extern "C" void __tsan_write##BYTES(void* address)                                                                 \
    {                                                                                                                  \
        races::note(address, BYTES, races::Access::kWRITE);                                                            \
    }

STAR_ACCESS(1)
STAR_ACCESS(2)
STAR_ACCESS(4)
STAR_ACCESS(8)
STAR_ACCESS(16)

extern "C" void __tsan_read_range(void* address, size_t bytes)
{
    races::note(address, bytes, races::Access::kREAD);
}

extern "C" void __tsan_write_range(void* address, size_t bytes)
{
    races::note(address, bytes, races::Access::kWRITE);
}

// What the instrumentation also calls, and a race needs not.
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
