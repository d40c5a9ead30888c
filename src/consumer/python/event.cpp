#include <cstddef>
#include <cstdint>
#include <new>

#include "consumer/python/objects.h"

// After Python.h.
#include <structmember.h>

namespace incast::consumer_python {

bool is_event_type(PyObject* type) {
    auto* base = reinterpret_cast<PyTypeObject*>(types().event);
    if (PyType_Check(type) != 0 && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), base) != 0) return true;
    PyErr_SetString(PyExc_TypeError, "expected a class that is derived from Event");
    return false;
}

Ref new_event(PyObject* type) {
    Ref event(PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(type), 0));
    if (event) {
        new (&event_of(event.get()).handle) Ref;
        new (&event_of(event.get()).memory) Ref;
    }
    return event;
}

namespace {

incast_consumer* consumer_of(const Event& event) {
    return handle_of(event.handle.get()).consumer;
}

bool is_its_callers(const Event& event) {
    return event.handle && !event.memory;
}

void destroy(PyObject* self) {
    Event& event = event_of(self);
    if (is_its_callers(event) && !event.released) {
        incast_consumer_release(consumer_of(event), &event.event);
    }
    event.memory.~Ref();
    event.handle.~Ref();
    free_object(self);
}

/// As the handle's, but it keeps the event.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    return show_memory(handle_of(event_of(self).handle.get()), self, view, flags);
}

/// What MFPs are slices of: a slice takes a fraction of the time that an array of its own does.
Ref memory_of(PyObject* self) {
    const Event& event = event_of(self);
    return event.memory ? Ref::share(event.memory.get())
                        : Ref(PyObject_CallFunctionObjArgs(types().frombuffer, self, types().uint8, nullptr));
}

const incast_consumer_source* table_of(const Event& event) {
    const incast_consumer_source* table = incast_consumer_sources(consumer_of(event), &event.event);
    if (table == nullptr) fail_of(handle_of(event.handle.get()), INCAST_CONSUMER_ARGUMENT);
    return table;
}

/// In place and read-only, or None. `source` is a copy: what was checked is what is used.
Ref mfp_of(const Event& event, PyObject* memory, const incast_consumer_source source) {
    if (source.bytes == 0) return Ref::share(Py_None);
    const std::uint64_t limit = handle_of(event.handle.get()).info.payload_bytes;
    if (source.bytes > limit || source.offset > limit - source.bytes) {
        fail_of(handle_of(event.handle.get()), INCAST_CONSUMER_OVERTAKEN);
        return {};
    }
    const Ref begin(PyLong_FromUnsignedLongLong(source.offset));
    const Ref end(PyLong_FromUnsignedLongLong(source.offset + source.bytes));
    if (!begin || !end) return {};
    const Ref slice(PySlice_New(begin.get(), end.get(), nullptr));
    return slice ? Ref(PyObject_GetItem(memory, slice.get())) : Ref();
}

/// One of the rows of the table for each source.
template <typename Make>
PyObject* for_each_source(const Event& event, Make make) {
    const incast_consumer_source* table = table_of(event);
    if (table == nullptr) return nullptr;
    Ref list(PyList_New(event.event.n_sources));
    for (std::uint32_t index = 0; list && index < event.event.n_sources; ++index) {
        PyObject* item = make(table[index]);
        if (item == nullptr || PyList_SetItem(list.get(), index, item) != 0) return nullptr;
    }
    return list.release();
}

PyObject* mfps(PyObject* self, PyObject*) {
    const Event& event = event_of(self);
    const Ref memory = memory_of(self);
    if (!memory) return nullptr;
    return for_each_source(event, [&](const incast_consumer_source& source) -> PyObject* {
        Ref number(PyLong_FromUnsignedLong(source.source));
        Ref mfp = mfp_of(event, memory.get(), source);
        Ref pair(number && mfp ? PyTuple_New(2) : nullptr);
        if (!pair) return nullptr;
        PyTuple_SetItem(pair.get(), 0, number.release());
        PyTuple_SetItem(pair.get(), 1, mfp.release());
        return pair.release();
    });
}

PyObject* mfp(PyObject* self, PyObject* wanted) {
    const Event& event = event_of(self);
    const long number = PyLong_AsLong(wanted);
    if (number == -1 && PyErr_Occurred() != nullptr) return nullptr;
    const incast_consumer_source* table = table_of(event);
    if (table == nullptr) return nullptr;
    for (std::uint32_t index = 0; index < event.event.n_sources; ++index) {
        if (table[index].source == number) {
            const Ref memory = memory_of(self);
            return memory ? mfp_of(event, memory.get(), table[index]).release() : nullptr;
        }
    }
    PyErr_SetObject(PyExc_KeyError, wanted);
    return nullptr;
}

PyObject* numbers_and_flags(PyObject* self, PyObject*) {
    return for_each_source(event_of(self), [](const incast_consumer_source& source) {
        return Py_BuildValue("(ii)", int{source.source}, int{source.flag});
    });
}

PyObject* release(PyObject* self, PyObject*) {
    Event& event = event_of(self);
    if (std::exchange(event.released, true)) Py_RETURN_TRUE;
    const int status = incast_consumer_release(consumer_of(event), &event.event);
    if (status == INCAST_CONSUMER_OVERTAKEN) Py_RETURN_FALSE;
    if (status < 0) return fail_of(handle_of(event.handle.get()), status);
    Py_RETURN_TRUE;
}

PyObject* judge(PyObject* self, PyObject* wanted) {
    Event& event = event_of(self);
    const long accepted = PyLong_AsLong(wanted);
    if (accepted == -1 && PyErr_Occurred() != nullptr) return nullptr;
    if (accepted < 0 || accepted > static_cast<long>(event.event.n_events)) {
        return PyErr_Format(PyExc_ValueError, "accepted = %ld; allowed: 0 to the %u events of this MEP", accepted,
                            event.event.n_events);
    }
    if (event.released) {
        PyErr_SetString(PyExc_ValueError, "the event was given back before");
        return nullptr;
    }
    event.released = true;
    const int status = incast_consumer_judge(consumer_of(event), &event.event, static_cast<std::uint32_t>(accepted));
    if (status == INCAST_CONSUMER_OVERTAKEN) Py_RETURN_FALSE;
    if (status < 0) return fail_of(handle_of(event.handle.get()), status);
    Py_RETURN_TRUE;
}

PyObject* is_intact(PyObject* self, void*) {
    const Event& event = event_of(self);
    return PyBool_FromLong(incast_consumer_intact(consumer_of(event), &event.event) == INCAST_CONSUMER_OK ? 1 : 0);
}

PyObject* node(PyObject* self, void*) {
    return PyLong_FromUnsignedLong(handle_of(event_of(self).handle.get()).info.node);
}

template <std::uint32_t Flag>
PyObject* has_flag(PyObject* self, void*) {
    return PyBool_FromLong((event_of(self).event.flags & Flag) != 0 ? 1 : 0);
}

constexpr Py_ssize_t place(std::size_t of_member) {
    return static_cast<Py_ssize_t>(offsetof(Event, event) + of_member);
}

}  // namespace

PyObject* make_event_type() {
    static PyMethodDef methods[] = {
        {"mfps", mfps, METH_NOARGS, "Source and MFP of all sources, in place and read-only; None if it is missing."},
        {"mfp", mfp, METH_O, "The MFP of a source, in place and read-only; None if it is missing."},
        {"numbers_and_flags", numbers_and_flags, METH_NOARGS, "Of all sources."},
        {"release", release, METH_NOARGS,
         "Gives it back; again does nothing. False: too late, the builder unit had taken it back."},
        {"judge", judge, METH_O,
         "Gives it back with a verdict: so many of its events are accepted, the rest is rejected. False: too late."},
        {}};
    static PyMemberDef members[] = {
        {"serial", T_ULONGLONG, place(offsetof(incast_consumer_event, serial)), READONLY,
         "The number of the event at its builder unit."},
        {"mep", T_ULONGLONG, place(offsetof(incast_consumer_event, mep)), READONLY,
         "The number of the MEP in the run."},
        {"first_event", T_ULONGLONG, place(offsetof(incast_consumer_event, first_event)), READONLY,
         "The id of the first event."},
        {"goodput_bytes", T_ULONGLONG, place(offsetof(incast_consumer_event, goodput_bytes)), READONLY,
         "Fragment bytes alone."},
        {"missed", T_ULONGLONG, place(offsetof(incast_consumer_event, missed)), READONLY,
         "MEPs that this consumer did not get since it attached, for want of room."},
        {"n_events", T_UINT, place(offsetof(incast_consumer_event, n_events)), READONLY,
         "The packing factor; 0 if every source is missing."},
        {"missing_sources", T_UINT, place(offsetof(incast_consumer_event, missing_sources)), READONLY,
         "How many sources have no MFP; `flags` says why."},
        {"attempt", T_UINT, place(offsetof(incast_consumer_event, attempt)), READONLY,
         "Which attempt at building it this was."},
        {}};
    static PyGetSetDef properties[] = {
        {"node", node, nullptr, "The node of the builder unit that built it.", nullptr},
        {"redelivered", has_flag<INCAST_CONSUMER_REDELIVERED>, nullptr,
         "Another builder unit may have handed it out before it died.", nullptr},
        {"repeated", has_flag<INCAST_CONSUMER_REPEATED>, nullptr,
         "Another consumer had it, and died or was ejected before it gave it back.", nullptr},
        {"intact", is_intact, nullptr,
         "Whether all that was read of it up to now was this event: it was not taken back meanwhile.", nullptr},
        {}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                                  {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                  {Py_tp_methods, methods},
                                  {Py_tp_members, members},
                                  {Py_tp_getset, properties},
                                  {}};
    static PyType_Spec spec = {"incast._consumer.Event", sizeof(Event), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    return PyType_FromSpec(&spec);
}

}  // namespace incast::consumer_python
