// Intrusive lists of transfers, in posting order.
#pragma once

#include "sim/pool.h"
#include "sim/records.h"

namespace incast::sim {

template <TransferLink Transfer::* link>
void append(Pool<Transfer>& pool, TransferList& list, TransferId id) {
    TransferLink& own = pool[id].*link;
    own = {list.tail, nil, true};
    if (list.tail == nil) {
        list.head = id;
    } else {
        (pool[list.tail].*link).next = id;
    }
    list.tail = id;
}

template <TransferLink Transfer::* link>
void unlink(Pool<Transfer>& pool, TransferList& list, TransferId id) {
    TransferLink& own = pool[id].*link;
    (own.previous == nil ? list.head : (pool[own.previous].*link).next) = own.next;
    (own.next == nil ? list.tail : (pool[own.next].*link).previous) = own.previous;
    own = {};
}

}  // namespace incast::sim
