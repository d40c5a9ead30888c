#include "transport/verbs/send_queue.h"

#include <utility>

namespace incast::transport::verbs {

SendQueue::SendQueue(std::uint32_t peer, std::uint32_t depth, std::byte* stage, std::size_t stage_bytes,
                     std::uint32_t lkey)
    : requests_(new Request[depth]), mask_(depth - 1), lkey_(lkey), stage_(stage), stage_mask_(stage_bytes - 1) {
    for (std::uint32_t place = 0; place < depth; ++place) {
        Request& request = requests_[place];
        request.wr.wr_id = static_cast<std::uint64_t>(peer) << 32 | place;
        request.wr.sg_list = request.parts.data();
        request.wr.next = &requests_[(place + 1) & mask_].wr;
    }
}

void SendQueue::start() {
    ended_ = posted_ = made_;
    stage_ended_ = stage_taken_;
}

std::byte* SendQueue::stage(std::size_t bytes) {
    const std::uint64_t whole = (bytes + stage_unit - 1) / stage_unit * stage_unit;
    std::uint64_t from = stage_taken_;
    const std::uint64_t to_end = stage_mask_ + 1 - (from & stage_mask_);
    if (whole > to_end) from += to_end;
    if (from + whole - stage_ended_ > stage_mask_ + 1) return nullptr;
    stage_taken_ = from + whole;
    return stage_ + (from & stage_mask_);
}

SendQueue::Request& SendQueue::make(ibv_wr_opcode opcode, unsigned flags) {
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

int SendQueue::post(ibv_qp* pair) {
    Request& first = requests_[posted_ & mask_];
    Request& last = requests_[(made_ - 1) & mask_];
    ibv_send_wr* const next = std::exchange(last.wr.next, nullptr);
    last.wr.send_flags |= unsigned{IBV_SEND_SIGNALED};
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(pair, &first.wr, &bad);
    last.wr.next = next;
    posted_ = made_;
    return error;
}

}  // namespace incast::transport::verbs
