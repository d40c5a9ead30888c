#include "softrio/cpp/port.h"

#include <cerrno>

#include <softrio.h>

namespace incast::rio {

namespace {

// The C functions take void* for both directions; they do not change what they write from.
void* untyped(std::span<const std::byte> bytes) {
    return const_cast<std::byte*>(bytes.data());
}

std::uint32_t size_of(std::span<const std::byte> bytes) {
    return static_cast<std::uint32_t>(bytes.size());
}

std::error_code take_cookie(int result, Cookie& cookie) {
    if (result > 0) cookie = static_cast<Cookie>(result);
    return error_of(result);
}

}  // namespace

Error error_line(const std::string& what, int result) {
    return Error{what + ": " + std::generic_category().message(-result)};
}

MasterPort::MasterPort(riomp_mport_t handle) : handle_(handle) {
    riomp_mgmt_mport_properties properties{};
    if (riomp_mgmt_query(handle, &properties) == 0) destid_ = properties.did_val;
}

Result<MasterPort> MasterPort::open(std::uint32_t mport, int flags) {
    riomp_mport_t handle = nullptr;
    const int error = riomp_mgmt_mport_create_handle(mport, flags, &handle);
    if (error != 0) return error_line("RapidIO master port " + std::to_string(mport), error);
    return MasterPort(handle);
}

Result<MasterPort> MasterPort::join(const std::string& fabric, int flags) {
    riomp_mport_t handle = nullptr;
    const int error = softrio_open_port(fabric.c_str(), flags, &handle);
    if (error == -EBUSY) return Error{"RapidIO fabric " + fabric + ": all 8 master ports of this process are in use"};
    if (error != 0) return error_line("RapidIO fabric " + fabric, error);
    return MasterPort(handle);
}

Result<std::vector<Destid>> MasterPort::endpoints() const {
    did_val_t* list = nullptr;
    std::uint32_t count = 0;
    const int error = riomp_mgmt_get_ep_list(number(), &list, &count);
    if (error != 0) return error_line("list of RapidIO endpoints", error);
    std::vector<Destid> found(list, list + count);
    (void)riomp_mgmt_free_ep_list(&list);
    return found;
}

bool MasterPort::has_guards() const {
    return softrio_permit(get(), 0, destid_, 0) != -EOPNOTSUPP;
}

void MasterPort::take_permits() const {
    (void)softrio_take_permits(get());
}

std::error_code MasterPort::listen(std::uint16_t first, std::uint16_t last, Destid source) {
    const int error = riomp_mgmt_dbrange_enable(get(), source, first, last);
    return error_of(error != 0 ? error : riomp_mgmt_set_event_mask(get(), RIO_EVENT_DOORBELL));
}

std::error_code MasterPort::ring(Destid target, std::uint16_t payload) const {
    riomp_mgmt_event event{};
    event.header = RIO_EVENT_DOORBELL;
    event.u.doorbell = {target, payload};
    return error_of(riomp_mgmt_send_event(get(), &event));
}

std::optional<Doorbell> MasterPort::hear() const {
    riomp_mgmt_event event{};
    int error = 0;
    do {
        error = riomp_mgmt_get_event(get(), &event);
    } while (error == -EINTR);
    if (error != 0) return std::nullopt;
    return Doorbell{event.u.doorbell.did_val, event.u.doorbell.payload};
}

bool MasterPort::arm() const {
    return softrio_arm(get()) == 0;
}

std::error_code MasterPort::write(Destid target, std::uint64_t address, std::span<const std::byte> bytes,
                                  Completion completion) const {
    const auto type = completion == Completion::placed ? RIO_DIRECTIO_TYPE_NWRITE_R : RIO_DIRECTIO_TYPE_NWRITE;
    return error_of(riomp_dma_write(get(), target, address, untyped(bytes), size_of(bytes), type,
                                    RIO_DIRECTIO_TRANSFER_SYNC, nullptr));
}

std::error_code MasterPort::read(Destid target, std::uint64_t address, std::span<std::byte> bytes) const {
    return error_of(
        riomp_dma_read(get(), target, address, bytes.data(), size_of(bytes), RIO_DIRECTIO_TRANSFER_SYNC, nullptr));
}

std::error_code MasterPort::post(Destid target, std::uint64_t address, std::span<const std::byte> bytes) const {
    return error_of(riomp_dma_write(get(), target, address, untyped(bytes), size_of(bytes), RIO_DIRECTIO_TYPE_NWRITE,
                                    RIO_DIRECTIO_TRANSFER_FAF, nullptr));
}

std::error_code MasterPort::start_write(Destid target, std::uint64_t address, std::span<const std::byte> bytes,
                                        Cookie& cookie, Stores stores) const {
    const auto type = stores == Stores::streaming ? RIO_DIRECTIO_TYPE_SWRITE_R : RIO_DIRECTIO_TYPE_NWRITE_R;
    return take_cookie(riomp_dma_write(get(), target, address, untyped(bytes), size_of(bytes), type,
                                       RIO_DIRECTIO_TRANSFER_ASYNC, nullptr),
                       cookie);
}

std::error_code MasterPort::start_read(Destid target, std::uint64_t address, std::span<std::byte> bytes,
                                       Cookie& cookie) const {
    return take_cookie(
        riomp_dma_read(get(), target, address, bytes.data(), size_of(bytes), RIO_DIRECTIO_TRANSFER_ASYNC, nullptr),
        cookie);
}

std::optional<std::error_code> MasterPort::ended(Cookie cookie, std::uint32_t timeout_ms) const {
    const int result =
        timeout_ms == 0 ? softrio_dma_ended(get(), cookie) : riomp_dma_wait_async(get(), cookie, timeout_ms);
    if (result == -ETIMEDOUT) return std::nullopt;
    return error_of(result);
}

}  // namespace incast::rio
