// Doorbells and port-writes of a master port of the kernel. Its files keep 10 events each: a thread takes them out as
// they come.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <linux/rio_mport_cdev.h>

#include "os/descriptor.h"
#include "softrio/port.h"

namespace incast::softrio::device {

class Events {
public:
    explicit Events(std::string path) : path_(std::move(path)) {}
    Events(const Events&) = delete;
    Events& operator=(const Events&) = delete;
    ~Events();
    /// In a child process: the thread is the parent's.
    void abandon();

    // As softrio::Port's.
    int open_sink(std::uint32_t& sink, bool on_demand);
    void close_sink(std::uint32_t sink);
    int arm(std::uint32_t sink);
    [[nodiscard]] int bell(std::uint32_t sink);
    void set_event_mask(std::uint32_t sink, std::uint32_t mask);
    [[nodiscard]] std::uint32_t event_mask(std::uint32_t sink);
    int enable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last);
    int disable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last);
    int get_event(std::uint32_t sink, bool wait, Event& event);
    int change_portwrites(bool enables, std::uint32_t sink, std::uint32_t mask, std::uint32_t low, std::uint32_t high);

private:
    struct Sink {
        os::Descriptor file;
        std::vector<rio_doorbell_filter> ranges;
        os::Descriptor bell;
        std::deque<Event> queue;
        bool has_rung = false;
        bool is_on_demand = false;
        bool is_armed = false;
        bool is_paused = false;  // the queue is full: what comes stays with the kernel
    };

    int start();  // with the lock; 0 or an errno
    void give_up_ranges(Sink& sink);
    static void give_up_all();
    void run();
    void take_in(std::uint32_t number, Sink& sink);
    static void silence(Sink& sink);
    void watch(int operation, int fd, std::uint32_t sink, bool wanted);
    Sink* find(std::uint32_t sink);
    int change_range(unsigned long request, std::uint32_t sink, std::uint32_t destid, std::uint16_t first,
                     std::uint16_t last);

    std::string path_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::uint32_t, Sink> sinks_;
    os::Descriptor poll_;
    os::Descriptor stop_;
    std::thread thread_;
};

}  // namespace incast::softrio::device
