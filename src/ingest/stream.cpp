#include "ingest/stream.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace incast::ingest {

namespace {

constexpr std::size_t first_bytes = std::size_t{128} << 10U;

/// Bytes of a header that tells which variant it is of, and how long the packet.
bool has_header(Bytes bytes) {
    if (bytes.size() >= wire::mfp_wide_header_bytes) return true;
    return bytes.size() >= wire::mfp_header_bytes && wire::load<std::uint16_t>(bytes, 0) != wire::mfp_wide_magic;
}

}  // namespace

wire::MutableBytes Stream::room() {
    if (begin_ == end_) begin_ = end_ = 0;
    if (bytes_.empty()) bytes_.resize(first_bytes);
    if (end_ == bytes_.size()) {
        if (begin_ < bytes_.size() / 2) {
            bytes_.resize(2 * bytes_.size());
        } else {
            std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
            end_ -= begin_;
            begin_ = 0;
        }
    }
    return wire::MutableBytes(bytes_).subspan(end_);
}

Result<std::optional<wire::MfpView>> Stream::peek() {
    for (;;) {
        const Bytes rest = Bytes(bytes_).subspan(begin_, end_ - begin_);
        if (!has_header(rest)) return std::optional<wire::MfpView>();
        if (const std::optional<std::uint64_t> end = wire::announced_end_of_run(rest); end && *end <= most_bytes_) {
            if (*end > rest.size()) return std::optional<wire::MfpView>();
            begin_ += *end;
            continue;
        }
        const Result<wire::MfpHeader> header = wire::peek_mfp(rest);
        if (!header) return header.error();
        if (header->packet_bytes > most_bytes_) {
            return Error{fmt::format("a packet of {} bytes, where {} are the most", header->packet_bytes, most_bytes_)};
        }
        if (header->packet_bytes > rest.size()) return std::optional<wire::MfpView>();
        const Result<wire::MfpView> view = wire::MfpView::parse(rest);
        if (!view) return view.error();
        return std::optional(*view);
    }
}

}  // namespace incast::ingest
