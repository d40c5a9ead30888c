#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <span>

#include <fcntl.h>
#include <poll.h>
#include <rapidio_mport_mgmt.h>
#include <softrio.h>

#include "softrio/api/devices.h"
#include "softrio/api/handle.h"
#include "softrio/registers.h"

using namespace incast::softrio;
using api::check;
using api::Handle;
using api::handle_of;
using api::tell;

namespace {

constexpr std::uint32_t register_space = 16U << 20;
constexpr std::uint32_t word = sizeof(std::uint32_t);
constexpr std::uint32_t mode_transfer = 1 << 1;  // as opposed to memory-mapped
constexpr std::uint32_t reported_dma_bytes = 64U << 20;
constexpr int most_looks = 1000;  // of 1 ms

template <class T>
T* allocate(std::size_t count) {
    return static_cast<T*>(std::calloc(count + 1, sizeof(T)));
}

bool is_register(std::uint32_t offset, std::uint32_t size) {
    return offset % word == 0 && size != 0 && size % word == 0 && size <= register_space &&
           offset <= register_space - size;
}

int make_handle(std::shared_ptr<api::Endpoint> endpoint, std::uint32_t mport_id, int flags,
                riomp_mport_t* mport_handle) {
    auto handle = std::unique_ptr<Handle>(new (std::nothrow) Handle);
    if (handle == nullptr) return -ENOMEM;
    handle->endpoint = std::move(endpoint);
    if (const int error = handle->port().open_sink(handle->sink, (flags & SOFTRIO_ON_DEMAND) != 0)) return error;
    handle->endpoint->use_sink(handle->sink);
    handle->fd = handle->port().bell(handle->sink);
    handle->mport_id = static_cast<std::uint8_t>(mport_id);
    handle->waits = (flags & O_NONBLOCK) == 0;
    *mport_handle = handle.release();
    return 0;
}

}  // namespace

int riomp_mgmt_get_mport_list(mport_list_t** dev_ids, uint8_t* number_of_mports) {
    if (dev_ids == nullptr || number_of_mports == nullptr) return tell(-EINVAL);
    const std::uint32_t count = std::min<std::uint32_t>(api::count_mports(), *number_of_mports);
    if (count == 0) return tell(-ENODEV);
    auto* list = allocate<mport_list_t>(count);
    if (list == nullptr) return tell(-ENOMEM);
    for (std::uint32_t mport = 0; mport < count; ++mport) {
        const auto endpoint = api::open_endpoint(mport);
        if (!endpoint) {
            std::free(list);
            return tell(-ENODEV);
        }
        list[mport] = mport << 16 | (*endpoint)->port->destid();
    }
    *dev_ids = list;
    *number_of_mports = static_cast<std::uint8_t>(count);
    return 0;
}

int riomp_mgmt_free_mport_list(mport_list_t** dev_ids) {
    if (dev_ids == nullptr) return tell(-EINVAL);
    std::free(*dev_ids);
    *dev_ids = nullptr;
    return 0;
}

int riomp_mgmt_get_ep_list(uint8_t mport_id, did_val_t** did_values, uint32_t* number_of_eps) {
    if (did_values == nullptr || number_of_eps == nullptr) return tell(-EINVAL);
    const auto endpoint = api::open_endpoint(mport_id);
    if (!endpoint) return tell(-ENODEV);
    const auto others = (*endpoint)->port->others();
    auto* list = allocate<did_val_t>(others.size());
    if (list == nullptr) return tell(-ENOMEM);
    std::ranges::copy(others, list);
    *did_values = list;
    *number_of_eps = static_cast<std::uint32_t>(others.size());
    return 0;
}

int riomp_mgmt_free_ep_list(did_val_t** did_values) {
    if (did_values == nullptr) return tell(-EINVAL);
    std::free(*did_values);
    *did_values = nullptr;
    return 0;
}

int riomp_mgmt_mport_create_handle(uint32_t mport_id, int flags, riomp_mport_t* mport_handle) {
    if (mport_handle == nullptr || mport_id >= max_mports) return tell(-EINVAL);
    auto endpoint = api::open_endpoint(mport_id);
    if (!endpoint) return tell(-ENODEV);
    return tell(make_handle(std::move(*endpoint), mport_id, flags, mport_handle));
}

int riomp_mgmt_mport_destroy_handle(riomp_mport_t* mport_handle) {
    if (mport_handle == nullptr || *mport_handle == nullptr) return tell(-EINVAL);
    std::unique_ptr<Handle> handle(handle_of(*mport_handle));
    *mport_handle = nullptr;
    handle->endpoint->leave_sink(handle->sink);
    // Woken, they return at once; unless another process has the same one open.
    for (int looks = 0; handle->waiting.load() != 0 && looks < most_looks; ++looks)
        ::poll(nullptr, 0, 1);
    if (handle->waiting.load() != 0) [[maybe_unused]]
        const Handle* left = handle.release();
    return 0;
}

int riomp_mgmt_get_handle_id(riomp_mport_t mport_handle, int* id) {
    if (mport_handle == nullptr || id == nullptr) return tell(-EINVAL);
    *id = mport_handle->fd;
    return 0;
}

int riomp_mgmt_query(riomp_mport_t mport_handle, struct riomp_mgmt_mport_properties* qresp) {
    if (qresp == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    *qresp = {};
    qresp->did_val = handle_of(mport_handle)->port().destid();
    qresp->id = mport_handle->mport_id;
    // What Linux reports of a Tsi721: what it leaves out, capabilities among it, is 0 here too.
    qresp->flags = RIO_MPORT_DMA | RIO_MPORT_DMA_SG;
    qresp->sys_size = 1;
    qresp->port_ok = 1;
    qresp->link_speed = RIO_LINK_500;
    qresp->link_width = RIO_LINK_4X;
    qresp->dma_max_size = reported_dma_bytes;
    qresp->transfer_mode = mode_transfer;
    return 0;
}

void riomp_mgmt_display_info(struct riomp_mgmt_mport_properties* prop) {
    if (prop == nullptr) return;
    constexpr const char* speeds[] = {"LINK DOWN", "1.25Gb", "2.5Gb", "3.125Gb", "5.0Gb", "6.25Gb"};
    constexpr const char* widths[] = {"1x", "1xR", "4x", "2x", "8x", "16x"};
    const char* speed = prop->link_speed < std::size(speeds) ? speeds[prop->link_speed] : "ERROR";
    const char* width = prop->link_width < std::size(widths) ? widths[prop->link_width] : "ERROR";
    // Scripts read these lines: they are those of the original.
    std::printf("\n+++ SRIO mport configuration +++\n");
    std::printf("mport: hdid=%u, id=%u, idx=%u, flags=0x%x, sys_size=%s\n", prop->did_val, prop->id, prop->index,
                prop->flags, prop->sys_size != 0 ? "large" : "small");
    std::printf("link: speed=%s width=%s\n", speed, width);
    if ((prop->flags & RIO_MPORT_DMA) != 0) {
        std::printf("DMA: max_sge=%u max_size=%u alignment=%u (%s)\n", prop->dma_max_sge, prop->dma_max_size,
                    prop->dma_align, (prop->flags & RIO_MPORT_DMA_SG) != 0 ? "HW SG" : "no HW SG");
    } else {
        std::printf("No DMA support\n");
    }
    std::printf("\n");
}

int riomp_mgmt_destid_set(riomp_mport_t mport_handle, did_val_t did_val) {
    if (const int error = check(mport_handle)) return tell(error);
    api::Endpoint& endpoint = *handle_of(mport_handle)->endpoint;
    const int error = endpoint.port->set_destid(did_val);
    if (error == 0 && endpoint.server != nullptr) endpoint.server->rename();
    if (error == 0) api::show_port(*endpoint.port, mport_handle->mport_id);
    return tell(error);
}

int riomp_mgmt_lcfg_read(riomp_mport_t mport_handle, uint32_t offset, uint32_t size, uint32_t* data) {
    if (const int error = check(mport_handle)) return tell(error);
    if (data == nullptr || !is_register(offset, size)) return tell(-EINVAL);
    Port& port = handle_of(mport_handle)->port();
    return tell(port.read_registers(port.destid(), offset, {data, size / word}));
}

int riomp_mgmt_lcfg_write(riomp_mport_t mport_handle, uint32_t offset, uint32_t size, uint32_t data) {
    if (const int error = check(mport_handle)) return tell(error);
    if (size != word || !is_register(offset, size)) return tell(-EINVAL);
    Port& port = handle_of(mport_handle)->port();
    return tell(port.write_register(port.destid(), offset, data));
}

int riomp_mgmt_rcfg_read(riomp_mport_t mport_handle, did_val_t did_val, hc_t hc, uint32_t offset, uint32_t size,
                         uint32_t* data) {
    if (const int error = check(mport_handle)) return tell(error);
    if (data == nullptr || !is_register(offset, size)) return tell(-EINVAL);
    Port& port = handle_of(mport_handle)->port();
    const std::span values(data, size / word);
    return tell(hc == HC_MP ? port.read_registers(did_val, offset, values)
                            : port.read_on_the_way(did_val, hc, offset, values));
}

int riomp_mgmt_rcfg_write(riomp_mport_t mport_handle, did_val_t did_val, hc_t hc, uint32_t offset, uint32_t size,
                          uint32_t data) {
    if (const int error = check(mport_handle)) return tell(error);
    if (size != word || !is_register(offset, size)) return tell(-EINVAL);
    Port& port = handle_of(mport_handle)->port();
    return tell(hc == HC_MP ? port.write_register(did_val, offset, data)
                            : port.write_on_the_way(did_val, hc, offset, data));
}

int riomp_mgmt_dbrange_enable(riomp_mport_t mport_handle, did_val_t did_val, uint16_t start, uint16_t end) {
    if (const int error = check(mport_handle)) return tell(error);
    Handle* handle = handle_of(mport_handle);
    return tell(handle->port().enable_range(handle->sink, did_val, start, end));
}

int riomp_mgmt_dbrange_disable(riomp_mport_t mport_handle, did_val_t did_val, uint16_t start, uint16_t end) {
    if (const int error = check(mport_handle)) return tell(error);
    Handle* handle = handle_of(mport_handle);
    return tell(handle->port().disable_range(handle->sink, did_val, start, end));
}

int riomp_mgmt_pwrange_enable(riomp_mport_t mport_handle, uint32_t mask, uint32_t low, uint32_t high) {
    if (const int error = check(mport_handle)) return tell(error);
    if (low > high) return tell(-EINVAL);
    Handle* handle = handle_of(mport_handle);
    const std::lock_guard lock(handle->portwrites_mutex);
    if (handle->portwrites.size() == max_filters) return tell(-ENOMEM);
    if (const int error = handle->port().enable_portwrites(handle->sink, mask, low, high)) return tell(error);
    handle->portwrites.push_back({mask, low, high});
    return 0;
}

int riomp_mgmt_pwrange_disable(riomp_mport_t mport_handle, uint32_t mask, uint32_t low, uint32_t high) {
    if (const int error = check(mport_handle)) return tell(error);
    Handle* handle = handle_of(mport_handle);
    const std::lock_guard lock(handle->portwrites_mutex);
    const auto found = std::ranges::find(handle->portwrites, api::PortwriteRange{mask, low, high});
    if (found == handle->portwrites.end()) return tell(-EINVAL);
    handle->portwrites.erase(found);
    return tell(handle->port().disable_portwrites(handle->sink, mask, low, high));
}

int riomp_mgmt_set_event_mask(riomp_mport_t mport_handle, unsigned int mask) {
    if (const int error = check(mport_handle)) return tell(error);
    const Handle* handle = handle_of(mport_handle);
    handle->port().set_event_mask(handle->sink, mask & (RIO_EVENT_DOORBELL | RIO_EVENT_PORTWRITE));
    return 0;
}

int riomp_mgmt_get_event_mask(riomp_mport_t mport_handle, unsigned int* mask) {
    if (mask == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    const Handle* handle = handle_of(mport_handle);
    *mask = handle->port().event_mask(handle->sink);
    return 0;
}

int riomp_mgmt_get_event(riomp_mport_t mport_handle, struct riomp_mgmt_event* evt) {
    if (evt == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    Handle* handle = handle_of(mport_handle);
    Event event;
    // Who closes the handle waits for those who wait here.
    if (handle->waits) handle->waiting.fetch_add(1);
    const int error = handle->port().get_event(handle->sink, handle->waits, event);
    if (handle->waits) handle->waiting.fetch_sub(1);
    if (error != 0) return tell(error);
    if (event.is_portwrite) {
        evt->header = RIO_EVENT_PORTWRITE;
        std::ranges::copy(event.portwrite, evt->u.portwrite.payload);
        return 0;
    }
    evt->header = RIO_EVENT_DOORBELL;
    evt->u.doorbell.did_val = event.doorbell.destid;
    evt->u.doorbell.payload = event.doorbell.payload;
    return 0;
}

int riomp_mgmt_send_event(riomp_mport_t mport_handle, struct riomp_mgmt_event* evt) {
    if (evt == nullptr) return tell(-EINVAL);
    if (const int error = check(mport_handle)) return tell(error);
    if (evt->header != RIO_EVENT_DOORBELL) return tell(-EOPNOTSUPP);
    const Handle* handle = handle_of(mport_handle);
    return tell(handle->port().send_doorbell({evt->u.doorbell.did_val, evt->u.doorbell.payload}, handle->waits));
}

int riomp_mgmt_device_add(riomp_mport_t mport_handle, did_val_t did_val, hc_t hc, ct_t ct, const char* name) {
    if (const int error = check(mport_handle)) return tell(error);
    Port& port = handle_of(mport_handle)->port();
    if (const int error = api::add_device(port, {mport_handle->mport_id, did_val, hc, ct, name == nullptr ? "" : name}))
        return tell(error);
    return tell(hc == HC_MP ? port.write_register(did_val, component_tag_register, ct) : 0);
}

int riomp_mgmt_device_del(riomp_mport_t mport_handle, did_val_t did_val, hc_t hc, ct_t ct, const char* name) {
    if (const int error = check(mport_handle)) return tell(error);
    Port& port = handle_of(mport_handle)->port();
    return tell(api::remove_device(port, {mport_handle->mport_id, did_val, hc, ct, name == nullptr ? "" : name}));
}

int softrio_arm(riomp_mport_t mport_handle) {
    if (const int error = check(mport_handle)) return tell(error);
    const Handle* handle = handle_of(mport_handle);
    return tell(handle->port().arm(handle->sink));
}

int softrio_open_port(const char* fabric, int flags, riomp_mport_t* mport_handle) {
    if (fabric == nullptr || mport_handle == nullptr) return tell(-EINVAL);
    auto opened = api::open_free_endpoint(fabric);
    if (!opened) return tell(-ENODEV);
    if (opened->endpoint == nullptr) return tell(-EBUSY);
    return tell(make_handle(std::move(opened->endpoint), opened->mport, flags, mport_handle));
}

int softrio_share_memory(riomp_mport_t mport_handle, uint64_t handle) {
    if (const int error = check(mport_handle)) return tell(error);
    return tell(handle_of(mport_handle)->port().share_memory(handle));
}
