#include "runtime/rendezvous.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>

namespace incast::runtime {
namespace {

constexpr std::size_t length_bytes = 4;
constexpr std::size_t max_queued = 4 * max_frame;  // a peer that reads so little is gone

Error not_a_frame(std::string_view what) {
    return {fmt::format("not an Incast node: {}", what)};
}

}  // namespace

bool Channel::send(const Json& message) {
    if (!open() || out_.size() - sent_ > max_queued) {
        return false;
    }
    const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
    const auto size = static_cast<std::uint32_t>(text.size());
    for (unsigned byte = 0; byte < length_bytes; ++byte) {
        out_.push_back(static_cast<char>(size >> (8 * byte) & 0xFFU));
    }
    out_ += text;
    return flush();
}

bool Channel::flush() {
    while (sent_ < out_.size()) {
        const ssize_t n = ::send(fd_.fd(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        }
        sent_ += static_cast<std::size_t>(n);
    }
    out_.clear();
    sent_ = 0;
    return true;
}

Result<std::optional<Json>> FrameReader::next(std::size_t limit) {
    if (bytes_.size() < length_bytes) {
        return std::optional<Json>();
    }
    std::uint32_t size = 0;
    for (unsigned byte = 0; byte < length_bytes; ++byte) {
        size |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes_[byte])) << (8 * byte);
    }
    if (size > limit) {
        return not_a_frame(fmt::format("a message of {} bytes is announced, at most {} are allowed", size, limit));
    }
    if (bytes_.size() < length_bytes + size) {
        return std::optional<Json>();
    }
    const std::string_view text = std::string_view(bytes_).substr(length_bytes, size);
    Json message = Json::parse(text.begin(), text.end(), nullptr, false);
    if (!message.is_object()) {
        return not_a_frame("the message is no JSON object");
    }
    bytes_.erase(0, length_bytes + size);
    return std::optional<Json>(std::move(message));
}

Result<std::optional<Json>> Channel::receive() {
    bool ended = false;
    while (true) {
        Result<std::optional<Json>> message = in_.next(limit_);
        if (!message || message->has_value()) {
            return message;
        }
        if (ended || !open()) {
            return Error{"the connection was closed"};
        }
        std::array<char, 65536> chunk;  // uninitialised: only what arrives is read
        const ssize_t n = recv(fd_.fd(), chunk.data(), chunk.size(), 0);
        if (n > 0) {
            in_.append({chunk.data(), static_cast<std::size_t>(n)});
        } else if (n == 0) {
            ended = true;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
            return std::optional<Json>();
        } else {
            return Error{fmt::format("the connection broke: {}", std::generic_category().message(errno))};
        }
    }
}

bool same_token(std::string_view one, std::string_view other) {
    unsigned differences = one.size() == other.size() ? 0 : 1;
    for (std::size_t index = 0; index < one.size(); ++index) {
        const char against = other.empty() ? '\0' : other[index % other.size()];
        differences |= static_cast<unsigned char>(one[index]) ^ static_cast<unsigned char>(against);
    }
    return differences == 0 && !one.empty();
}

std::uint64_t random_word() {
    std::uint64_t word = 0;
    if (getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word)) {
        std::abort();  // without random numbers there is no secret
    }
    return word;
}

std::string make_token() {
    return fmt::format("{:016x}{:016x}", random_word(), random_word());
}

std::string to_hex(Bytes bytes) {
    std::string text;
    for (const std::byte byte : bytes) {
        text += fmt::format("{:02x}", static_cast<unsigned>(byte));
    }
    return text;
}

std::optional<Blob> blob_from_hex(std::string_view text) {
    Blob blob;
    if (text.size() % 2 != 0 || text.size() / 2 > sizeof blob.bytes) {
        return std::nullopt;
    }
    const auto digit = [](char letter) {
        return letter >= '0' && letter <= '9' ? letter - '0' : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
    };
    for (std::size_t index = 0; index < text.size(); index += 2) {
        const int high = digit(text[index]);
        const int low = digit(text[index + 1]);
        if (high < 0 || low < 0) {
            return std::nullopt;
        }
        blob.bytes[index / 2] = static_cast<std::byte>(high * 16 + low);
    }
    blob.size = static_cast<std::uint8_t>(text.size() / 2);
    return blob;
}

std::optional<std::uint64_t> number_in(const Json& message, const char* key) {
    const auto found = message.find(key);
    if (found == message.end() || !found->is_number_unsigned()) {
        return std::nullopt;
    }
    return found->get<std::uint64_t>();
}

std::optional<std::string> text_in(const Json& message, const char* key) {
    const auto found = message.find(key);
    if (found == message.end() || !found->is_string()) {
        return std::nullopt;
    }
    return found->get<std::string>();
}

std::string type_of(const Json& message) {
    return text_in(message, "type").value_or("");
}

}  // namespace incast::runtime
