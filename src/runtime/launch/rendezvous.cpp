#include "runtime/launch/rendezvous.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>

namespace incast::runtime {
namespace {

constexpr std::size_t length_bytes = 4;
constexpr std::size_t max_queued = 2 * max_coordinator_frame;  // a peer that reads so little is gone

Error not_a_frame(std::string_view what) {
    return {fmt::format("not an Incast node: {}", what)};
}

/// Before it is parsed: a parser would build whatever is there.
bool nested_at_most(std::string_view text, unsigned limit) {
    unsigned depth = 0;
    bool quoted = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char letter = text[at];
        if (quoted) {
            at += letter == '\\' ? 1 : 0;
            quoted = letter != '"';
        } else if (letter == '"') {
            quoted = true;
        } else if (letter == '[' || letter == '{') {
            if (++depth > limit) {
                return false;
            }
        } else if (letter == ']' || letter == '}') {
            depth -= depth > 0 ? 1 : 0;
        }
    }
    return true;
}

}  // namespace

bool Channel::send(const Json& message) {
    if (!open() || stuck_) {
        return false;
    }
    if (queued() > max_queued) {
        stuck_ = true;  // a message left out would make nonsense of what follows
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
    if (stuck_) {
        return false;
    }
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

void FrameReader::append(std::string_view bytes) {
    bytes_.erase(0, std::exchange(taken_, 0));
    bytes_ += bytes;
}

Result<std::optional<Json>> FrameReader::next(FrameLimits limits) {
    const std::string_view there = std::string_view(bytes_).substr(taken_);
    if (there.size() < length_bytes) {
        return std::optional<Json>();
    }
    std::uint32_t size = 0;
    for (unsigned byte = 0; byte < length_bytes; ++byte) {
        size |= static_cast<std::uint32_t>(static_cast<unsigned char>(there[byte])) << (8 * byte);
    }
    if (size > limits.most) {
        return not_a_frame(
            fmt::format("a message of {} bytes is announced, at most {} are allowed", size, limits.most));
    }
    if (there.size() < length_bytes + size) {
        return std::optional<Json>();
    }
    const std::string_view text = there.substr(length_bytes, size);
    if (!nested_at_most(text, max_nesting)) {
        return not_a_frame(fmt::format("the message is nested more than {} deep", max_nesting));
    }
    Json message = Json::parse(text.begin(), text.end(), nullptr, false);
    if (!message.is_object()) {
        return not_a_frame("the message is no JSON object");
    }
    if (size > limits.but_for_samples && type_of(message) != "sample") {
        return not_a_frame(fmt::format("a message '{}' has {} bytes, at most {} are allowed",
                                       one_line(type_of(message)), size, limits.but_for_samples));
    }
    taken_ += length_bytes + size;
    return std::optional<Json>(std::move(message));
}

Result<std::optional<Json>> Channel::receive() {
    bool ended = false;
    while (true) {
        Result<std::optional<Json>> message = in_.next(limits_);
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
    if (text.size() % 2 != 0 || text.size() / 2 > max_address_bytes) {
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
        blob.bytes.push_back(static_cast<std::byte>(high * 16 + low));
    }
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

std::string one_line(std::string_view text) {
    std::string line(text.substr(0, max_said));
    for (char& letter : line) {
        letter = static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F ? ' ' : letter;
    }
    return line + (text.size() > max_said ? "..." : "");
}

}  // namespace incast::runtime
