// The send queue of one peer: work requests in a ring, made when posted, handed to the device by the next flush as one
// chain, and known to have ended by completions, of which most requests give none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <infiniband/verbs.h>

#include <incast/transport.h>

namespace incast::transport::verbs {

class SendQueue {
public:
    /// Every so many requests, and the last of every chain, say that they and those before them have ended.
    static constexpr std::uint32_t signal_every = 16;
    static constexpr std::size_t stage_unit = 64;

    struct Request {
        ibv_send_wr wr{};
        std::array<ibv_sge, 2> parts{};
        Token token = 0;
        std::uint64_t staged = 0;  // memory that was taken until then is free when it has ended
    };

    /// `depth` and `stage_bytes`: powers of two. `stage` outlives this. `reads_at_once`: so many reads are under way,
    /// and nothing else is handed to the device until they have ended; 0: the device sees to it that all end in their
    /// order.
    SendQueue(std::uint32_t peer, std::uint32_t depth, std::byte* stage, std::size_t stage_bytes, std::uint32_t lkey,
              std::uint32_t reads_at_once = 0);

    static constexpr std::uint32_t peer_of(std::uint64_t wr_id) { return static_cast<std::uint32_t>(wr_id >> 32); }

    /// Made and not ended.
    [[nodiscard]] std::uint32_t under_way() const { return static_cast<std::uint32_t>(made_ - ended_); }
    [[nodiscard]] bool has_room(std::uint32_t requests) const { return under_way() + requests <= mask_ + 1; }
    [[nodiscard]] bool has_unposted() const { return made_ != posted_; }
    [[nodiscard]] std::uint64_t ended() const { return ended_; }

    /// Memory for `bytes`, one after the other, which the next request takes with it. nullptr: no room now.
    std::byte* stage(std::size_t bytes) {
        const std::uint64_t whole = (bytes + stage_unit - 1) / stage_unit * stage_unit;
        std::uint64_t from = stage_taken_;
        const std::uint64_t to_end = stage_mask_ + 1 - (from & stage_mask_);
        if (whole > to_end) from += to_end;
        if (from + whole - stage_ended_ > stage_mask_ + 1) return nullptr;
        stage_taken_ = from + whole;
        return stage_ + (from & stage_mask_);
    }
    [[nodiscard]] bool has_stage(std::size_t bytes) const {
        return stage_taken_ + 2 * bytes - stage_ended_ <= stage_mask_ + 1;  // some may be skipped at the end
    }
    [[nodiscard]] std::uint32_t lkey() const { return lkey_; }
    /// The next request, to be filled in; its token is 0, and it has no parts. Precondition: has_room(1).
    Request& make(ibv_wr_opcode opcode, unsigned flags = 0) {
        Request& request = requests_[made_ & mask_];
        const bool signalled = made_ % signal_every == signal_every - 1;
        ++made_;
        request.token = 0;
        request.staged = stage_taken_;
        request.wr.num_sge = 0;
        request.wr.opcode = opcode;
        request.wr.send_flags = flags | (signalled ? unsigned{IBV_SEND_SIGNALED} : 0U);
        return request;
    }

    /// Hands what was made to the device, up to what has to wait for reads. An errno, or 0.
    int post(ibv_qp* pair);

    /// The request of that completion and all before it have ended; for each that has a token calls
    /// each(token, is_the_last). False: the completion is of no request that is under way.
    template <class Each>
    bool end(std::uint64_t wr_id, Each each) {
        const auto place = static_cast<std::uint32_t>(wr_id);
        const std::uint32_t behind = (place - static_cast<std::uint32_t>(ended_)) & mask_;
        if (behind >= posted_ - ended_) return false;
        end_many(behind + 1, each);
        return true;
    }
    /// All of them.
    template <class Each>
    void end_all(Each each) {
        posted_ = made_;
        end_many(under_way(), each);
    }
    /// Nothing of the device's is under way any more.
    [[nodiscard]] bool is_quiet() const { return ended_ == posted_; }
    void start();

private:
    std::uint64_t may_post_until();
    template <class Each>
    void end_many(std::uint32_t many, Each& each) {
        for (std::uint32_t left = many; left > 0; --left) {
            const Request& request = requests_[ended_++ & mask_];
            if (request.token != 0) each(request.token, left == 1);
            if (left == 1) stage_ended_ = request.staged;
        }
    }

    std::unique_ptr<Request[]> requests_;
    std::uint32_t mask_;
    std::uint32_t lkey_;
    std::uint64_t made_ = 0;
    std::uint64_t posted_ = 0;
    std::uint64_t ended_ = 0;
    std::uint64_t reads_from_ = 0;  // what was posted from here on are reads
    std::uint32_t reads_at_once_;
    std::byte* stage_;
    std::uint64_t stage_mask_;
    std::uint64_t stage_taken_ = 0;
    std::uint64_t stage_ended_ = 0;
};

}  // namespace incast::transport::verbs
