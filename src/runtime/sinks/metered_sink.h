// What all sinks count in the same way.
#pragma once

#include "base/prng.h"
#include "runtime/sinks/sink.h"

namespace incast::sinks {

class MeteredSink : public RuntimeSink {
public:
    explicit MeteredSink(const SinkOptions& options)
        : open_loop_(options.open_loop), policy_(options.policy), cpu_clock_(options.cpu_clock) {}

    std::size_t durable(Time, std::span<protocol::MepId>) override { return 0; }
    [[nodiscard]] Time next_deadline() const override { return time_never; }
    [[nodiscard]] const SinkStats& stats() const final { return stats_; }
    void clear_latencies() final {
        stats_.service_ns.clear();
        stats_.trigger_ns.clear();
        stats_.trigger_spread_ns = 0;
    }
    [[nodiscard]] std::string failure() const override { return {}; }

protected:
    /// When a MEP's latencies began.
    struct Begin {
        Time assigned = 0;
        Time trigger = 0;  // 0: not known
    };
    [[nodiscard]] Begin begin_of(const protocol::BuiltMep& mep);
    void count(const protocol::BuiltMep& mep);
    void note_wrong(const std::vector<std::string>& lines);
    void count_latency(Time now, const Begin& begin);

    /// Measures what is done until it is destroyed as the sink's work: one MEP in measure_one_in, and stands for the
    /// others, because reading a thread's CPU time is a system call, and dear beside checking a small MEP.
    class Work {
    public:
        explicit Work(MeteredSink& sink)
            : sink_(sink),
              measured_(sink.cpu_clock_ != nullptr && chosen(sink.stats_.meps)),
              begin_(measured_ ? sink.cpu_clock_() : 0) {}
        ~Work() {
            if (measured_) sink_.stats_.cpu += static_cast<Time>(measure_one_in) * (sink_.cpu_clock_() - begin_);
        }
        Work(const Work&) = delete;
        Work& operator=(const Work&) = delete;

    private:
        static constexpr std::uint64_t measure_one_in = 16;
        /// As if drawn: sinks do more work for some MEPs than for others, every so many.
        static bool chosen(std::uint64_t mep) { return base::mix64(mep) % measure_one_in == 0; }

        MeteredSink& sink_;
        bool measured_;
        Time begin_;
    };

    SinkStats stats_;

private:
    bool open_loop_;
    sources::Policy policy_;
    Time (*cpu_clock_)();
};

}  // namespace incast::sinks
