#include "runtime/launch/file_messages.h"

#include <array>
#include <cstddef>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include <poll.h>

#include "runtime/machine/run_clock.h"

namespace incast::runtime {
namespace {

constexpr std::size_t part_bytes = max_address_bytes;  // what blob_from_hex() reads
constexpr std::size_t most_queued = std::size_t{64} << 10U;
constexpr int send_patience_ms = 10'000;
constexpr const char* not_whole = ".new";

/// Until that is all that the socket has not taken. False: the other side does not read, or is gone.
bool send_until(std::size_t queued, Channel& channel) {
    while (channel.queued() > queued) {
        pollfd waiting{channel.fd(), POLLOUT, 0};
        if (poll(&waiting, 1, send_patience_ms) <= 0 || !channel.flush()) {
            return false;
        }
    }
    return true;
}

/// The file while it comes.
class Incoming {
public:
    explicit Incoming(std::filesystem::path file) : file_(std::move(file)) {}

    /// False: it makes no sense, or cannot be written.
    bool take(const Json& message) {
        if (type_of(message) == "file_end") {
            whole_ = out_.is_open() && number_in(message, "bytes") == bytes_;
            return whole_;
        }
        if (type_of(message) != "file") {
            return true;  // said before it was told to send
        }
        const std::optional<std::string> digits = text_in(message, "part");
        const std::optional<Blob> part = digits ? blob_from_hex(*digits) : std::nullopt;
        if (!part || bytes_ + part->bytes.size() > max_fetched_bytes) {
            return false;
        }
        if (!out_.is_open()) {
            out_.open(file_, std::ios::binary | std::ios::trunc);
        }
        bytes_ += part->bytes.size();
        out_.write(reinterpret_cast<const char*>(part->bytes.data()), static_cast<std::streamsize>(part->bytes.size()));
        return out_.good();
    }
    bool close() {
        out_.close();
        return whole_ && out_.good();
    }

private:
    std::filesystem::path file_;
    std::ofstream out_;
    std::uint64_t bytes_ = 0;
    bool whole_ = false;
};

/// The next message; nothing: the stream has ended, or nothing came in time.
std::optional<Json> next_message(Channel& channel, int patience_ms) {
    while (true) {
        Result<std::optional<Json>> message = channel.receive();
        if (!message || message->has_value()) {
            return message ? *message : std::nullopt;
        }
        pollfd waiting{channel.fd(), POLLIN, 0};
        if (!channel.flush() || poll(&waiting, 1, patience_ms) <= 0) {
            return std::nullopt;
        }
    }
}

}  // namespace

void send_file(Channel& channel, const std::filesystem::path& file) {
    std::error_code code;
    const std::uintmax_t size = std::filesystem::file_size(file, code);
    std::ifstream in(file, std::ios::binary);
    if (code || size > max_fetched_bytes || !in) {
        return;
    }
    std::array<char, part_bytes> part{};
    while (in.read(part.data(), part.size()), in.gcount() > 0) {
        const auto bytes = std::as_bytes(std::span(part).first(static_cast<std::size_t>(in.gcount())));
        if (!channel.send({{"type", "file"}, {"part", to_hex(bytes)}}) || !send_until(most_queued, channel)) {
            return;
        }
    }
    channel.send({{"type", "file_end"}, {"bytes", size}});
    send_until(0, channel);
}

bool receive_file(Channel& channel, const std::filesystem::path& into, int patience_ms) {
    std::filesystem::path part = into;
    part += not_whole;
    Incoming file(part);
    const RunClock clock;
    const Time deadline = clock.now() + 2 * Time{patience_ms} * ps_per_ms;
    bool good = channel.open();
    while (good && clock.now() < deadline) {
        const std::optional<Json> message = next_message(channel, patience_ms);
        if (!message) {
            break;
        }
        good = file.take(*message);
    }
    std::error_code code;
    if (file.close() && good) {
        std::filesystem::rename(part, into, code);
        return !code;
    }
    std::filesystem::remove(part, code);
    return false;
}

}  // namespace incast::runtime
