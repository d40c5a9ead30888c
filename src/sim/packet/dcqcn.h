// DCQCN's reaction point in fixed point: Y. Zhu et al., "Congestion control for large-scale RDMA deployments", SIGCOMM
// 2015, section 3 and figure 7. Rates are integers in bit/s and alpha has 20 fractional bits, so that a run is the same
// whatever the compiler does with floating point.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/packet/types.h"

namespace incast::sim::packet {

/// Defaults: the values of that paper for 40 Gb/s, recalled and not re-read (see docs/packet-model.md); the rate steps
/// are usually scaled with the link rate.
struct DcqcnSettings {
    std::uint32_t gain_shift = 8;                 // g = 2^-8
    Time alpha_period = 55 * ps_per_us;           // without a notification alpha decays once in it
    Time increase_period = 55 * ps_per_us;        // the increase timer
    std::uint64_t increase_bytes = 10'000'000;    // the byte counter
    std::uint32_t fast_recovery_steps = 5;        // F
    Rate additive_step = mbit_per_s(40);          // R_AI
    Rate hyper_step = mbit_per_s(400);            // R_HAI; assumed: 10 R_AI
    Rate minimum = mbit_per_s(40);                // assumed
    Time notification_interval = 50 * ps_per_us;  // notification point: at most one CNP per flow in it
    /// Every cut sets the target to the rate before it, as the paper has it. False: only the first cut after an
    /// increase does, so that cuts in a row are recovered from together (clamp_tgt_rate = 0 of Linux's mlx5 driver).
    bool clamp_target = true;
    /// 0: each notification cuts at once, and raises alpha (the paper). More: as adapters from ConnectX-4 on, a cut
    /// ends each such period in which a notification came, the first cut is one period after the first notification,
    /// and alpha rises or falls once in each alpha_period (rate_reduce_monitor_period and dce_tcp_rtt of Linux's mlx5
    /// driver).
    Time cut_period = 0;
};

class RateControl {
public:
    static constexpr std::uint32_t one = 1U << 20;  // alpha = 1

    RateControl() = default;
    explicit RateControl(Rate line) : line_(line.bits_per_s), current_(line_), target_(line_) {}

    /// False until the first notification, and again once the rate is back at the line's: no timer runs then.
    [[nodiscard]] bool active() const { return active_; }
    [[nodiscard]] Rate rate() const { return {current_}; }
    [[nodiscard]] Rate target() const { return {target_}; }
    [[nodiscard]] std::uint32_t alpha() const { return alpha_; }
    /// The next call of on_time that changes anything.
    [[nodiscard]] Time next_deadline() const {
        return active_ ? std::min({alpha_at_, cut_at_, increase_at_}) : time_never;
    }

    /// A CNP came: cut, or let the end of this period cut. True if the rate changed.
    bool on_notification(Time now, const DcqcnSettings& settings) {
        const bool first = !active_;
        if (first) {
            active_ = true;
            alpha_ = one;
            alpha_at_ = now + settings.alpha_period;
            increase_at_ = time_never;
        }
        if (settings.cut_period != 0) {
            if (first) cut_at_ = now + settings.cut_period;
            raise_alpha_ = !first;
            cut_due_ = true;
            return false;
        }
        cut(now, settings);
        move_alpha(true, settings);
        alpha_at_ = now + settings.alpha_period;
        return true;
    }
    /// True if the rate changed.
    bool on_time(Time now, const DcqcnSettings& settings) {
        if (!active_) return false;
        if (now >= alpha_at_) {
            move_alpha(raise_alpha_, settings);
            raise_alpha_ = false;
            alpha_at_ += settings.alpha_period;
        }
        if (now >= cut_at_) {
            cut_at_ += settings.cut_period;
            if (cut_due_) {
                cut_due_ = false;
                cut(now, settings);
                return true;
            }
        }
        if (now < increase_at_) return false;
        increase_at_ += settings.increase_period;
        ++timer_steps_;
        increase(settings);
        return true;
    }
    /// So many bytes were sent; true if the rate changed.
    bool on_bytes(std::uint64_t bytes, const DcqcnSettings& settings) {
        if (increase_at_ == time_never) return false;  // not yet cut
        bytes_ += bytes;
        if (bytes_ < settings.increase_bytes) return false;
        bytes_ -= settings.increase_bytes;
        ++byte_steps_;
        increase(settings);
        return true;
    }

private:
    /// And start over with the increases.
    void cut(Time now, const DcqcnSettings& settings) {
        if (settings.clamp_target || timer_steps_ + byte_steps_ != 0) target_ = current_;
        current_ =
            std::max<std::uint64_t>(settings.minimum.bits_per_s, current_ * (2ULL * one - alpha_) / (2ULL * one));
        timer_steps_ = 0;
        byte_steps_ = 0;
        bytes_ = 0;
        increase_at_ = now + settings.increase_period;
    }
    void move_alpha(bool up, const DcqcnSettings& settings) {
        alpha_ -= alpha_ >> settings.gain_shift;
        if (up) alpha_ += one >> settings.gain_shift;
    }
    void increase(const DcqcnSettings& settings) {
        const std::uint32_t most = std::max(timer_steps_, byte_steps_);
        const std::uint32_t least = std::min(timer_steps_, byte_steps_);
        if (least > settings.fast_recovery_steps) {
            target_ += (least - settings.fast_recovery_steps) * settings.hyper_step.bits_per_s;
        } else if (most >= settings.fast_recovery_steps) {
            target_ += settings.additive_step.bits_per_s;
        }
        target_ = std::min(target_, line_);
        current_ = (target_ + current_ + 1) / 2;
        if (current_ >= line_) active_ = false;
    }

    std::uint64_t line_ = 0;
    std::uint64_t current_ = 0;
    std::uint64_t target_ = 0;
    std::uint64_t bytes_ = 0;
    Time alpha_at_ = time_never;
    Time increase_at_ = time_never;
    Time cut_at_ = time_never;  // the end of the period
    std::uint32_t alpha_ = one;
    std::uint32_t timer_steps_ = 0;
    std::uint32_t byte_steps_ = 0;
    bool active_ = false;
    bool cut_due_ = false;      // a notification came in this cut_period
    bool raise_alpha_ = false;  // and in this alpha_period
};

}  // namespace incast::sim::packet
