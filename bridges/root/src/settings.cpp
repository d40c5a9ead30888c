#include "settings.h"

#include <cstdlib>
#include <sstream>

#include <TError.h>

namespace incast_root {

namespace {

// As much as the buffers of TCP have on a host, about: programs of ROOT send a message whole before they receive one.
constexpr std::uint32_t preset_buffers = 32;
constexpr std::uint32_t preset_buffer_bytes = 64U << 10U;

std::string variable(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

/// `A=1,B=2`. False: not of that form.
bool read_pairs(const std::string& text, std::map<std::string, std::string>& into) {
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        const std::size_t equals = part.find('=');
        if (equals == 0 || equals == std::string::npos || equals + 1 == part.size()) return false;
        into[part.substr(0, equals)] = part.substr(equals + 1);
    }
    return true;
}

bool read_way(const std::string& text, std::uint32_t& into) {
    if (text == "doorbell") return into = INCAST_CHANNEL_DOORBELL, true;
    if (text == "memory") return into = INCAST_CHANNEL_MEMORY, true;
    if (text == "message") return into = INCAST_CHANNEL_MESSAGE, true;
    return false;
}

bool read_number(const std::string& text, std::uint32_t& into) {
    char* end = nullptr;
    const unsigned long value = std::strtoul(text.c_str(), &end, 10);
    if (text.empty() || *end != 0 || value > (1UL << 30U)) return false;
    into = static_cast<std::uint32_t>(value);
    return true;
}

bool read_ring(const std::string& text, incast_channel_options& into) {
    std::map<std::string, std::string> pairs;
    if (!read_pairs(text, pairs)) return false;
    for (const auto& [name, value] : pairs) {
        const bool is_good = name == "buffers"        ? read_number(value, into.buffers)
                             : name == "buffer_bytes" ? read_number(value, into.buffer_bytes)
                             : name == "batch"        ? read_number(value, into.batch)
                             : name == "announce"     ? read_way(value, into.announce)
                             : name == "acknowledge"  ? read_way(value, into.acknowledge)
                                                      : false;
        if (!is_good) return false;
    }
    return true;
}

}  // namespace

bool is_channel_transport(const std::string& name) {
    return name == "shm" || name == "rio" || name == "cm" || name == "verbs";
}

Settings read_settings() {
    Settings made;
    made.ring.buffers = preset_buffers;
    made.ring.buffer_bytes = preset_buffer_bytes;
    if (const std::string transport = variable("INCAST_ROOT"); !transport.empty()) {
        if (transport == "tcp" || is_channel_transport(transport))
            made.transport = transport;
        else
            ::Error("INCAST_ROOT", "'%s' is none of shm, rio, cm, verbs, tcp; shm is used", transport.c_str());
    }
    if (const std::string hosts = variable("INCAST_ROOT_HOSTS"); !read_pairs(hosts, made.hosts)) {
        ::Error("INCAST_ROOT_HOSTS", "'%s' is not of the form HOST=PLACE,HOST=PLACE; no host is known", hosts.c_str());
        made.hosts.clear();
    }
    const incast_channel_options preset = made.ring;
    if (const std::string ring = variable("INCAST_ROOT_RING"); !read_ring(ring, made.ring)) {
        ::Error("INCAST_ROOT_RING",
                "'%s': allowed are buffers=N, buffer_bytes=N, batch=N, and announce or acknowledge = doorbell, memory "
                "or message, with commas between them; the default is used",
                ring.c_str());
        made.ring = preset;
    }
    return made;
}

}  // namespace incast_root
