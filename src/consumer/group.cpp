// Several handles as one (include/incast/consumer.h). Whether a member has something is seen in memory; while none has,
// the group sleeps on the words of all of them, or, where the kernel cannot do that, on their sockets.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <sys/epoll.h>
#include <unistd.h>

#include <incast/consumer.h>

#include "consumer/handle.h"
#include "consumer/limit.h"

namespace {

using incast::consumer::Limit;
using incast::consumer::Sleep;

constexpr std::size_t most_rung_at_once = 16;

}  // namespace

struct incast_consumer_group {
    int epoll;
    int size;
    int capacity;
    int turn;  // whose it is: with a busy builder unit the others are not kept waiting
    bool can_sleep_on_words;
    std::int64_t looked_for_ends_ms;
    incast_consumer** members;

    [[nodiscard]] int find(const incast_consumer* consumer) const {
        return static_cast<int>(std::find(members, members + size, consumer) - members);
    }
    void take_out(int index) {
        ::epoll_ctl(epoll, EPOLL_CTL_DEL, incast_consumer_fd(members[index]), nullptr);
        std::copy(members + index + 1, members + size, members + index);
        --size;
        turn = 0;
    }
};

namespace {

/// Of those that have something, each in turn: 1, an event; 0, nobody has; or how one of them ended, which is a member
/// no longer.
int take_from_any(incast_consumer_group& group, incast_consumer_event& event, incast_consumer*& whose) {
    for (int looked = 0; looked < group.size; ++looked) {
        const int index = group.turn;
        group.turn = index + 1 == group.size ? 0 : index + 1;
        incast_consumer* member = group.members[index];
        const int status = has_something(*member) ? incast_consumer_next(member, 0, &event) : 0;
        if (status != 0) {
            whose = member;
            if (status < 0) {
                group.take_out(index);
            }
            return status;
        }
    }
    return 0;
}

/// Words do not tell of processes that died, nor does anything while events keep coming from the others.
void look_for_ends(incast_consumer_group& group) {
    const std::int64_t now_ms = Limit::now_ms();
    if (now_ms - group.looked_for_ends_ms >= incast::consumer::look_for_ends_ms) {
        group.looked_for_ends_ms = now_ms;
        std::for_each_n(group.members, group.size, [](incast_consumer* member) { (void)has_ended(*member); });
    }
}

/// Until one of them may have something, or timeout_ms are over. 0, or errno.
int sleep_on_words(incast_consumer_group& group, int timeout_ms) {
    std::array<incast::consumer::Watched, incast::consumer::most_watched> news;
    for (int index = 0; index < group.size; ++index) {
        incast_consumer& member = *group.members[index];
        news[static_cast<std::size_t>(index)] = watch_news(member);
        if (!may_sleep(member, Sleep::on_word)) {
            return 0;
        }
    }
    return incast::consumer::sleep_on(news.data(), group.size, timeout_ms);
}

int sleep_on_sockets(incast_consumer_group& group, int timeout_ms) {
    for (int index = 0; index < group.size; ++index) {
        if (!may_sleep(*group.members[index], Sleep::on_socket)) {
            return 0;
        }
    }
    std::array<epoll_event, most_rung_at_once> rung;
    const int count = ::epoll_wait(group.epoll, rung.data(), static_cast<int>(rung.size()), timeout_ms);
    for (int which = 0; which < count; ++which) {
        auto& member = *static_cast<incast_consumer*>(rung[static_cast<std::size_t>(which)].data.ptr);
        if (!has_something(member)) {
            (void)has_ended(member);  // a ring for what was taken before it came, or the end
        }
    }
    return count < 0 ? errno : 0;
}

}  // namespace

int incast_consumer_group_make(incast_consumer_group** group) {
    if (group == nullptr) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    *group = nullptr;
    auto* made = static_cast<incast_consumer_group*>(std::calloc(1, sizeof(incast_consumer_group)));
    if (made == nullptr) {
        return INCAST_CONSUMER_SYSTEM;
    }
    made->epoll = ::epoll_create1(EPOLL_CLOEXEC);
    if (made->epoll < 0) {
        const int kept = errno;
        std::free(made);
        errno = kept;
        return INCAST_CONSUMER_SYSTEM;
    }
    made->can_sleep_on_words = incast::consumer::can_sleep_on_several();
    *group = made;
    return INCAST_CONSUMER_OK;
}

int incast_consumer_group_add(incast_consumer_group* group, incast_consumer* consumer) {
    if (group == nullptr || consumer == nullptr || group->find(consumer) < group->size) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    if (group->size == group->capacity) {
        const int capacity = std::max(8, 2 * group->capacity);
        void* larger = std::realloc(static_cast<void*>(group->members),
                                    static_cast<std::size_t>(capacity) * sizeof(incast_consumer*));
        if (larger == nullptr) {
            return INCAST_CONSUMER_SYSTEM;
        }
        group->members = static_cast<incast_consumer**>(larger);
        group->capacity = capacity;
    }
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.ptr = consumer;
    if (::epoll_ctl(group->epoll, EPOLL_CTL_ADD, incast_consumer_fd(consumer), &interest) != 0) {
        return INCAST_CONSUMER_SYSTEM;
    }
    group->members[group->size++] = consumer;
    return INCAST_CONSUMER_OK;
}

int incast_consumer_group_remove(incast_consumer_group* group, incast_consumer* consumer) {
    if (group == nullptr || consumer == nullptr || group->find(consumer) == group->size) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    group->take_out(group->find(consumer));
    return INCAST_CONSUMER_OK;
}

int incast_consumer_group_next(incast_consumer_group* group, int timeout_ms, incast_consumer_event* event,
                               incast_consumer** consumer) {
    if (group == nullptr || event == nullptr || consumer == nullptr) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    *consumer = nullptr;
    for (const Limit limit(timeout_ms);;) {
        look_for_ends(*group);
        const int status = take_from_any(*group, *event, *consumer);
        if (status != 0) {
            return status;
        }
        if (group->size == 0) {
            return INCAST_CONSUMER_ENDED;
        }
        if (limit.left() == 0) {
            return 0;
        }
        const int slice_ms = limit.left_of(incast::consumer::look_for_ends_ms);
        const bool on_words =
            group->size == 1 || (group->can_sleep_on_words && group->size <= incast::consumer::most_watched);
        const int error = on_words ? sleep_on_words(*group, slice_ms) : sleep_on_sockets(*group, slice_ms);
        if (error != 0) {
            errno = error;
            return error == EINTR ? 0 : INCAST_CONSUMER_SYSTEM;
        }
    }
}

void incast_consumer_group_free(incast_consumer_group* group) {
    if (group != nullptr) {
        ::close(group->epoll);
        std::free(static_cast<void*>(group->members));
        std::free(group);
    }
}
