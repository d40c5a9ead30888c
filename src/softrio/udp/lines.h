// A TCP connection that carries lines of text, for what is said between endpoints and their enumerating host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "os/descriptor.h"
#include "softrio/udp/address.h"

namespace incast::softrio::udp {

inline constexpr std::size_t max_endpoints = 1024;  // of an enumerating host
inline constexpr std::size_t max_groups = 64;       // that it tells of; each may have all of them
inline constexpr std::size_t max_line_bytes = 8192;

/// Nothing here waits. For one thread.
class Lines {
public:
    Lines() = default;
    /// Of a connected socket.
    explicit Lines(os::Descriptor socket);

    [[nodiscard]] int fd() const { return socket_.fd(); }
    [[nodiscard]] bool is_open() const { return socket_.is_open(); }
    void close() { socket_.close(); }
    [[nodiscard]] Address local() const;
    [[nodiscard]] Address remote() const;

    /// Whole lines, each with its end. Who does not take in what it is told is not talked to: that closes.
    void say(std::string_view lines);
    /// What has arrived, without its end: use(line). The end of the stream and a line that is too long close, then.
    template <class Use>
    void take(Use&& use) {
        receive();
        std::size_t begin = 0;
        for (std::size_t end = 0; (end = text_.find('\n', begin)) != std::string::npos; begin = end + 1)
            use(std::string_view(text_).substr(begin, end - begin));
        text_.erase(0, begin);
        if (text_.size() > max_line_bytes || has_ended_) close();
    }

private:
    void receive();

    os::Descriptor socket_;
    std::string text_;
    bool has_ended_ = false;
};

/// Takes the first word off a line.
std::string_view take_word(std::string_view& line);
/// Digits only, within the bounds.
std::optional<std::uint32_t> number_of(std::string_view word, std::uint32_t low, std::uint32_t high);

}  // namespace incast::softrio::udp
