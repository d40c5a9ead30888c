// Several handles as one (include/incast/consumer.h), made of the other public functions: a member is awake while it
// may have something, and armed, asleep on its socket, once it was found empty.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include <sys/epoll.h>
#include <unistd.h>

#include <incast/consumer.h>

#include "consumer/limit.h"

namespace {

constexpr std::size_t most_woken_at_once = 16;

struct Member {
    incast_consumer* consumer;
    bool awake;
};

}  // namespace

struct incast_consumer_group {
    int epoll;
    int size;
    int capacity;
    int turn;  // whose it is: with a busy builder unit the others are not kept waiting
    Member* members;

    [[nodiscard]] int find(const incast_consumer* consumer) const {
        int index = 0;
        while (index < size && members[index].consumer != consumer) {
            ++index;
        }
        return index;
    }
    void take_out(int index) {
        ::epoll_ctl(epoll, EPOLL_CTL_DEL, incast_consumer_fd(members[index].consumer), nullptr);
        std::copy(members + index + 1, members + size, members + index);
        --size;
        turn = 0;
    }
};

namespace {

/// Of those that may have something, each in turn: 1, an event; 0, all are armed now; or how one of them ended, which
/// is a member no longer.
int take_from_any(incast_consumer_group& group, incast_consumer_event& event, incast_consumer*& whose) {
    for (bool some = true; some;) {
        some = false;
        for (int looked = 0; looked < group.size; ++looked) {
            const int index = group.turn;
            group.turn = index + 1 == group.size ? 0 : index + 1;
            Member& member = group.members[index];
            if (!member.awake) {
                continue;
            }
            const int status = incast_consumer_next(member.consumer, 0, &event);
            if (status != 0) {
                whose = member.consumer;
                if (status < 0) {
                    group.take_out(index);
                }
                return status;
            }
            member.awake = incast_consumer_arm(member.consumer) != 0;
            some = some || member.awake;
        }
    }
    return 0;
}

/// Until one of them may have something. 0, or errno.
int wait_for_any(incast_consumer_group& group, int timeout_ms) {
    std::array<epoll_event, most_woken_at_once> woken;
    const int count = ::epoll_wait(group.epoll, woken.data(), static_cast<int>(woken.size()), timeout_ms);
    for (int which = 0; which < count; ++which) {
        const int index = group.find(static_cast<incast_consumer*>(woken[static_cast<std::size_t>(which)].data.ptr));
        if (index < group.size) {
            group.members[index].awake = true;
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
    *group = made;
    return INCAST_CONSUMER_OK;
}

int incast_consumer_group_add(incast_consumer_group* group, incast_consumer* consumer) {
    if (group == nullptr || consumer == nullptr || group->find(consumer) < group->size) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    if (group->size == group->capacity) {
        const int capacity = std::max(8, 2 * group->capacity);
        void* larger = std::realloc(group->members, static_cast<std::size_t>(capacity) * sizeof(Member));
        if (larger == nullptr) {
            return INCAST_CONSUMER_SYSTEM;
        }
        group->members = static_cast<Member*>(larger);
        group->capacity = capacity;
    }
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.ptr = consumer;
    if (::epoll_ctl(group->epoll, EPOLL_CTL_ADD, incast_consumer_fd(consumer), &interest) != 0) {
        return INCAST_CONSUMER_SYSTEM;
    }
    group->members[group->size++] = {consumer, true};
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
    const incast::consumer::Limit limit(timeout_ms);
    for (bool last = timeout_ms == 0;; last = limit.left() == 0) {
        const int status = take_from_any(*group, *event, *consumer);
        if (status != 0) {
            return status;
        }
        if (group->size == 0) {
            return INCAST_CONSUMER_ENDED;
        }
        if (last) {
            return 0;
        }
        const int error = wait_for_any(*group, limit.left());
        if (error != 0) {
            errno = error;
            return error == EINTR ? 0 : INCAST_CONSUMER_SYSTEM;
        }
    }
}

void incast_consumer_group_free(incast_consumer_group* group) {
    if (group != nullptr) {
        ::close(group->epoll);
        std::free(group->members);
        std::free(group);
    }
}
