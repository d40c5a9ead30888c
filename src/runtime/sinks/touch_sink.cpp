#include "runtime/sinks/touch_sink.h"

#include <cstring>

namespace incast::sinks {

protocol::Sink::Taken TouchSink::take(Time now, const protocol::BuiltMep& mep) {
    constexpr std::size_t line_bytes = 64;
    {
        const Work work(*this);
        for (const protocol::BuiltSource& source : mep.sources) {
            std::size_t offset = 0;
            for (; offset + sizeof(std::uint64_t) <= source.body.size(); offset += line_bytes) {
                std::uint64_t word = 0;
                std::memcpy(&word, source.body.data() + offset, sizeof word);
                sum_ += word;
            }
            if (offset < source.body.size()) {
                sum_ += std::to_integer<std::uint64_t>(source.body[offset]);
            }
        }
    }
    count(mep);
    count_latency(now, begin_of(mep));
    return Taken::done;
}

}  // namespace incast::sinks
