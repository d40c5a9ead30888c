#include "transport/verbs/send_queue.h"

#include <algorithm>
#include <utility>

namespace incast::transport::verbs {

SendQueue::SendQueue(std::uint32_t peer, std::uint32_t depth, std::byte* stage, std::size_t stage_bytes,
                     std::uint32_t lkey, std::uint32_t reads_at_once)
    : requests_(new Request[depth]),
      mask_(depth - 1),
      lkey_(lkey),
      reads_at_once_(reads_at_once),
      stage_(stage),
      stage_mask_(stage_bytes - 1) {
    for (std::uint32_t place = 0; place < depth; ++place) {
        Request& request = requests_[place];
        request.wr.wr_id = static_cast<std::uint64_t>(peer) << 32 | place;
        request.wr.sg_list = request.parts.data();
        request.wr.next = &requests_[(place + 1) & mask_].wr;
    }
}

void SendQueue::start() {
    ended_ = posted_ = reads_from_ = made_;
    stage_ended_ = stage_taken_;
}

std::uint64_t SendQueue::may_post_until() {
    if (reads_at_once_ == 0) return made_;
    for (std::uint64_t at = posted_; at != made_; ++at) {
        const std::uint64_t reads = at - std::max(ended_, reads_from_);
        const bool is_read = requests_[at & mask_].wr.opcode == IBV_WR_RDMA_READ;
        if (reads >= (is_read ? reads_at_once_ : 1U)) return at;
        if (!is_read) reads_from_ = at + 1;
    }
    return made_;
}

int SendQueue::post(ibv_qp* pair) {
    const std::uint64_t until = may_post_until();
    if (until == posted_) return 0;
    Request& first = requests_[posted_ & mask_];
    Request& last = requests_[(until - 1) & mask_];
    ibv_send_wr* const next = std::exchange(last.wr.next, nullptr);
    last.wr.send_flags |= unsigned{IBV_SEND_SIGNALED};
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(pair, &first.wr, &bad);
    last.wr.next = next;
    posted_ = until;
    return error;
}

}  // namespace incast::transport::verbs
