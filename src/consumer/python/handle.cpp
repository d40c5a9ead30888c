#include <cstdint>

#include "consumer/limit.h"
#include "consumer/python/objects.h"

namespace incast::consumer_python {
namespace {

/// Handle(name, node, timeout_ms): node -1: any; waits for it. A signal ends the library's waiting, not ours.
PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
    const char* name = nullptr;
    int node = 0;
    int timeout_ms = 0;
    if (PyArg_ParseTuple(arguments, "sii", &name, &node, &timeout_ms) == 0) return nullptr;
    incast_consumer* consumer = nullptr;
    int status = 0;
    for (const consumer::Limit limit(timeout_ms);;) {
        Py_BEGIN_ALLOW_THREADS;
        status = incast_consumer_attach(name, node, limit.left(), &consumer);
        Py_END_ALLOW_THREADS;
        if (status != INCAST_CONSUMER_NOBODY || limit.left() == 0) break;
        if (PyErr_CheckSignals() != 0) return nullptr;
    }
    if (status < 0) {
        const Ref where(node < 0 ? PyUnicode_FromString(name) : PyUnicode_FromFormat("%s, node %d", name, node));
        return where ? fail(status, PyUnicode_AsUTF8AndSize(where.get(), nullptr)) : nullptr;
    }
    Ref self(PyType_GenericAlloc(type, 0));
    if (!self) {
        incast_consumer_free(consumer);
        return nullptr;
    }
    handle_of(self.get()).consumer = consumer;
    status = incast_consumer_get_info(consumer, &handle_of(self.get()).info);
    return status < 0 ? fail(status, name) : self.release();
}

void destroy(PyObject* self) {
    incast_consumer_free(handle_of(self).consumer);
    free_object(self);
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    return show_memory(handle_of(self), self, view, flags);
}

/// next(event_type, timeout_ms): the caller's, or None.
PyObject* next(PyObject* self, PyObject* arguments) {
    PyObject* type = nullptr;
    int timeout_ms = 0;
    if (PyArg_ParseTuple(arguments, "Oi", &type, &timeout_ms) == 0 || !is_event_type(type)) return nullptr;
    Ref event = new_event(type);
    if (!event) return nullptr;
    const Handle& handle = handle_of(self);
    int status = 0;
    for (const consumer::Limit limit(timeout_ms);;) {
        Py_BEGIN_ALLOW_THREADS;
        status = incast_consumer_next(handle.consumer, limit.left(), &event_of(event.get()).event);
        Py_END_ALLOW_THREADS;
        if (status != 0) break;
        if (PyErr_CheckSignals() != 0) return nullptr;
        if (limit.left() == 0) Py_RETURN_NONE;
    }
    if (status < 0) return fail_of(handle, status);
    event_of(event.get()).handle = Ref::share(self);
    return event.release();
}

PyObject* file_number(PyObject* self, PyObject*) {
    return PyLong_FromLong(incast_consumer_fd(handle_of(self).consumer));
}

PyObject* arm(PyObject* self, PyObject*) {
    return PyBool_FromLong(incast_consumer_arm(handle_of(self).consumer));
}

PyObject* leave(PyObject* self, PyObject*) {
    incast_consumer_leave(handle_of(self).consumer);
    Py_RETURN_NONE;
}

template <auto Member>
PyObject* number(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(handle_of(self).info.*Member);
}

}  // namespace

int show_memory(const Handle& handle, PyObject* owner, Py_buffer* view, int flags) {
    void* begin = const_cast<std::uint8_t*>(incast_consumer_payload(handle.consumer));
    return PyBuffer_FillInfo(view, owner, begin, static_cast<Py_ssize_t>(handle.info.payload_bytes), 1, flags);
}

PyObject* make_handle_type() {
    static PyMethodDef methods[] = {{"next", next, METH_VARARGS, "The next event of that type, or None in time."},
                                    {"fileno", file_number, METH_NOARGS, "To sleep on."},
                                    {"arm", arm, METH_NOARGS, "Before sleeping: whether there is something already."},
                                    {"leave", leave, METH_NOARGS, "Detaches; memory stays mapped."},
                                    {}};
    static PyGetSetDef numbers[] = {
        {"run", number<&incast_consumer_info::run>, nullptr, "Number of the run.", nullptr},
        {"payload_bytes", number<&incast_consumer_info::payload_bytes>, nullptr, "Of its memory.", nullptr},
        {"node", number<&incast_consumer_info::node>, nullptr, "Of the builder unit.", nullptr},
        {"incarnation", number<&incast_consumer_info::incarnation>, nullptr, "Of the node.", nullptr},
        {"n_sources", number<&incast_consumer_info::n_sources>, nullptr, "Of every event.", nullptr},
        {"window", number<&incast_consumer_info::window>, nullptr, "Events it may have at a time.", nullptr},
        {}};
    static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                                  {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                                  {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, numbers},
                                  {}};
    static PyType_Spec spec = {"incast._consumer.Handle", sizeof(Handle), 0, Py_TPFLAGS_DEFAULT, slots};
    return PyType_FromSpec(&spec);
}

}  // namespace incast::consumer_python
