#include "transport/verbs/send_queue.h"

#include <utility>

namespace incast::transport::verbs {

SendQueue::SendQueue(std::uint32_t peer, std::uint32_t depth, std::byte* stage, std::size_t stage_bytes,
                     std::uint32_t lkey, bool fence_reads)
    : requests_(new Request[depth]),
      mask_(depth - 1),
      lkey_(lkey),
      fences_reads_(fence_reads),
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
    ended_ = posted_ = made_;
    stage_ended_ = stage_taken_;
}

int SendQueue::post(ibv_qp* pair) {
    Request& first = requests_[posted_ & mask_];
    Request& last = requests_[(made_ - 1) & mask_];
    ibv_send_wr* const next = std::exchange(last.wr.next, nullptr);
    last.wr.send_flags |= unsigned{IBV_SEND_SIGNALED};
    if (fences_reads_) fence(last);
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(pair, &first.wr, &bad);
    last.wr.next = next;
    posted_ = made_;
    return error;
}

}  // namespace incast::transport::verbs
