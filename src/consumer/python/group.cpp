#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "consumer/limit.h"
#include "consumer/python/objects.h"

namespace incast::consumer_python {
namespace {

/// Group(event_type, [(handle, array of all of its memory), ...])
PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject* event_type = nullptr;
    PyObject* list = nullptr;
    if (PyArg_ParseTuple(arguments, "OO", &event_type, &list) == 0 || !is_event_type(event_type)) return nullptr;
    Ref self(PyType_GenericAlloc(type, 0));
    if (!self) return nullptr;
    Group& group = group_of(self.get());
    new (&group.event_type) Ref(Ref::share(event_type));
    new (&group.members) std::vector<Group::Member>;
    int status = incast_consumer_group_make(&group.group);
    const Py_ssize_t size = PySequence_Size(list);
    if (size < 0) return nullptr;
    for (Py_ssize_t index = 0; status >= 0 && index < size; ++index) {
        const Ref pair(PySequence_GetItem(list, index));
        PyObject* handle = nullptr;
        PyObject* memory = nullptr;
        if (!pair || PyArg_ParseTuple(pair.get(), "O!O", reinterpret_cast<PyTypeObject*>(types().handle), &handle,
                                      &memory) == 0) {
            return nullptr;
        }
        status = incast_consumer_group_add(group.group, handle_of(handle).consumer);
        if (status >= 0) {
            group.members.push_back({Ref::share(handle), Ref::share(memory)});
        }
    }
    return status < 0 ? fail(status, "consumers") : self.release();
}

void destroy(PyObject* self) {
    Group& group = group_of(self);
    incast_consumer_group_free(group.group);
    std::destroy_at(&group.members);
    group.event_type.~Ref();
    free_object(self);
}

PyObject* remove(PyObject* self, PyObject* handle) {
    if (Py_TYPE(handle) != reinterpret_cast<PyTypeObject*>(types().handle)) {
        PyErr_SetString(PyExc_TypeError, "expected a Handle");
        return nullptr;
    }
    // It stays a member to us: a loop may have an event of it.
    (void)incast_consumer_group_remove(group_of(self).group, handle_of(handle).consumer);
    Py_RETURN_NONE;
}

const Group::Member* member_of(const Group& group, const incast_consumer* consumer) {
    const auto found = std::ranges::find_if(group.members, [&](const Group::Member& member) {
        return handle_of(member.handle.get()).consumer == consumer;
    });
    return found == group.members.end() ? nullptr : &*found;
}

enum class Took : std::uint8_t { an_event, nothing, all_ended, failure };

/// Fills the event in. `failure`: an exception is set. That one of several ended in order is no news.
Took take(Group& group, int timeout_ms, Event& event, const Group::Member*& whose) {
    const consumer::Limit limit(timeout_ms);
    while (true) {
        incast_consumer* consumer = nullptr;
        int status = 0;
        Py_BEGIN_ALLOW_THREADS;
        status = incast_consumer_group_next(group.group, limit.left(), &event.event, &consumer);
        Py_END_ALLOW_THREADS;
        whose = member_of(group, consumer);
        if (status > 0) return Took::an_event;
        if (status == INCAST_CONSUMER_ENDED && whose == nullptr) return Took::all_ended;
        if (status < 0 && status != INCAST_CONSUMER_ENDED) {
            whose == nullptr ? fail(status, "all builder units") : fail_of(handle_of(whose->handle.get()), status);
            return Took::failure;
        }
        if (status == 0) {  // a signal ends the library's waiting
            if (PyErr_CheckSignals() != 0) return Took::failure;
            if (limit.left() == 0) return Took::nothing;
        }
    }
}

/// next(timeout_ms): the caller's, or None.
PyObject* next(PyObject* self, PyObject* arguments) {
    int timeout_ms = 0;
    if (PyArg_ParseTuple(arguments, "i", &timeout_ms) == 0) return nullptr;
    Group& group = group_of(self);
    Ref event = new_event(group.event_type.get());
    if (!event) return nullptr;
    const Group::Member* whose = nullptr;
    switch (take(group, timeout_ms, event_of(event.get()), whose)) {
        case Took::an_event:
            event_of(event.get()).handle = Ref::share(whose->handle.get());
            return event.release();
        case Took::nothing:
            Py_RETURN_NONE;
        case Took::all_ended:
            return fail(INCAST_CONSUMER_ENDED, "all builder units");
        case Took::failure:
            break;
    }
    return nullptr;
}

PyObject* begin_loop(PyObject* self) {
    Ref loop(PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(types().loop), 0));
    if (!loop) return nullptr;
    new (&loop_of(loop.get()).group) Ref(Ref::share(self));
    new (&loop_of(loop.get()).current) Ref;
    return loop.release();
}

// --- loops

void give_back(Loop& loop) {
    const Ref last = std::move(loop.current);
    if (last && !std::exchange(event_of(last.get()).released, true)) {
        // Too late, or no longer attached: nothing that a loop has to know.
        (void)incast_consumer_release(handle_of(event_of(last.get()).handle.get()).consumer,
                                      &event_of(last.get()).event);
    }
}

void destroy_loop(PyObject* self) {
    Loop& loop = loop_of(self);
    give_back(loop);
    loop.current.~Ref();
    loop.group.~Ref();
    free_object(self);
}

PyObject* next_of_loop(PyObject* self) {
    Loop& loop = loop_of(self);
    give_back(loop);
    Group& group = group_of(loop.group.get());
    Ref event = new_event(group.event_type.get());
    if (!event) return nullptr;
    const Group::Member* whose = nullptr;
    if (take(group, -1, event_of(event.get()), whose) != Took::an_event) return nullptr;
    event_of(event.get()).handle = Ref::share(whose->handle.get());
    event_of(event.get()).memory = Ref::share(whose->memory.get());
    loop.current = Ref::share(event.get());
    return event.release();
}

}  // namespace

PyObject* make_group_type() {
    static PyMethodDef methods[] = {{"next", next, METH_VARARGS, "The next event of any of them, or None in time."},
                                    {"remove", remove, METH_O, "That handle takes no part any more."},
                                    {}};
    static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                                  {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                                  {Py_tp_iter, reinterpret_cast<void*>(begin_loop)},
                                  {Py_tp_methods, methods},
                                  {}};
    static PyType_Spec spec = {"incast._consumer.Group", sizeof(Group), 0, Py_TPFLAGS_DEFAULT, slots};
    return PyType_FromSpec(&spec);
}

PyObject* make_loop_type() {
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy_loop)},
                                  {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
                                  {Py_tp_iternext, reinterpret_cast<void*>(next_of_loop)},
                                  {}};
    static PyType_Spec spec = {"incast._consumer.Loop", sizeof(Loop), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    return PyType_FromSpec(&spec);
}

}  // namespace incast::consumer_python
