#include "softrio/udp/newcomers.h"

#include <utility>

namespace incast::softrio::udp {

bool Newcomers::keep(std::uint32_t source, std::span<const std::byte> message) {
    if (known_.contains(source)) return false;
    const auto found = kept_.find(source);
    if (found == kept_.end() && kept_.size() >= max_sources) return false;
    if (found != kept_.end() && found->second.size() >= max_messages) return false;
    kept_[source].emplace_back(message.begin(), message.end());
    return true;
}

std::vector<std::uint32_t> Newcomers::waiting() const {
    std::vector<std::uint32_t> sources;
    sources.reserve(kept_.size());
    for (const auto& [source, messages] : kept_)
        sources.push_back(source);
    return sources;
}

std::vector<Newcomers::Message> Newcomers::know(std::uint32_t source) {
    known_.insert(source);
    const auto found = kept_.find(source);
    if (found == kept_.end()) return {};
    std::vector<Message> messages = std::move(found->second);
    kept_.erase(found);
    return messages;
}

}  // namespace incast::softrio::udp
