#include "runtime/sources/program_ring.h"

#include <atomic>
#include <cstring>
#include <new>

#include "consumer/futex.h"

namespace incast::sources {

ProgramRing::ProgramRing(std::span<std::byte> file, std::uint64_t ring_bytes)
    : header_(new(file.data()) source::RingHeader), ring_(file.subspan(sizeof(source::RingHeader), ring_bytes)) {
    header_->ring_bytes = ring_bytes;
}

std::optional<Bytes> ProgramRing::peek() {
    record_ = 0;
    for (int skipped = 0; !broken_; ++skipped) {
        const std::uint64_t committed = header_->committed.load(std::memory_order_acquire);
        const std::uint64_t there = committed - taken_;
        if (there == 0) return std::nullopt;
        const std::uint64_t place = taken_ % ring_.size();
        const std::uint64_t to_end = ring_.size() - place;
        broken_ = there > ring_.size() || there % source::line_bytes != 0;
        if (broken_) break;
        source::RecordHead head;
        std::memcpy(&head, ring_.data() + place, sizeof head);
        if (head.packet_bytes == 0) {  // the rest of the ring is not used
            broken_ = skipped > 0 || there < to_end;
            if (!broken_) taken_ += to_end;
            continue;
        }
        broken_ =
            head.start < source::least_start || head.start > source::most_start || head.packet_bytes > ring_.size();
        if (broken_) break;
        record_ = source::record_bytes(head.start, head.packet_bytes);
        broken_ = record_ > there || record_ > to_end;
        if (!broken_) return Bytes(ring_).subspan(place + head.start, head.packet_bytes);
    }
    record_ = 0;
    return std::nullopt;
}

void ProgramRing::pop() {
    taken_ += record_;
    record_ = 0;
}

void ProgramRing::tell(std::uint64_t next_event) {
    header_->next_event.store(next_event, std::memory_order_relaxed);
    if (taken_ == told_) return;
    told_ = taken_;
    header_->taken.store(taken_, std::memory_order_release);
    // The program says that it sleeps, then looks: one of the two sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (header_->asleep.load(std::memory_order_relaxed) != 0) wake();
}

void ProgramRing::wake() {
    header_->asleep.store(0, std::memory_order_relaxed);
    header_->news.fetch_add(1, std::memory_order_release);
    consumer::wake(header_->news);
}

bool ProgramRing::is_closed() const {
    return header_->closed.load(std::memory_order_acquire) != 0;
}

void ProgramRing::end(source::State state) {
    header_->state.store(state, std::memory_order_release);
    wake();
}

}  // namespace incast::sources
