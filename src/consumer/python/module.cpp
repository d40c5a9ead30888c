#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <vector>

#include "consumer/python/objects.h"

namespace incast::consumer_python {
namespace {

struct Exception {
    int status;  // 0: of all others
    const char* name;
    const char* says;
    PyObject* type = nullptr;
};

std::array<Exception, 5>& exceptions() {
    // The base first.
    static std::array<Exception, 5> all{{
        {0, "ConsumerError", "What the library says; `status` is its code (include/incast/consumer.h)."},
        {INCAST_CONSUMER_ENDED, "BuilderEndedError",
         "The builder unit ended in order, and all of its events were taken. A `for` loop ends with it."},
        {INCAST_CONSUMER_LOST, "BuilderLostError", "The builder unit's process died."},
        {INCAST_CONSUMER_EJECTED, "EjectedError",
         "The builder unit dropped this consumer, and has taken back all of its events."},
        {INCAST_CONSUMER_NOBODY, "NoBuilderError",
         "Nobody takes consumers under that name, on that node, on this host."},
    }};
    return all;
}

/// builders(name): the nodes.
PyObject* builders(PyObject*, PyObject* arguments) {
    const char* name = nullptr;
    if (PyArg_ParseTuple(arguments, "s", &name) == 0) return nullptr;
    static constexpr int most = 4096;
    std::vector<std::uint32_t> nodes(most);
    const int count = incast_consumer_builders(name, nodes.data(), most);
    if (count < 0) return fail(count, name);
    const int listed = count < most ? count : most;
    Ref list(PyList_New(listed));
    for (int index = 0; list && index < listed; ++index) {
        PyObject* node = PyLong_FromUnsignedLong(nodes[static_cast<std::size_t>(index)]);
        if (node == nullptr || PyList_SetItem(list.get(), index, node) != 0) return nullptr;
    }
    return list.release();
}

/// What the module holds is kept for ever, as the types of heap objects must be.
bool add(PyObject* module, const char* name, PyObject* made) {
    return made != nullptr && PyModule_AddObjectRef(module, name, made) == 0;
}

}  // namespace

Types& types() {
    static Types only;
    return only;
}

bool add_exceptions(PyObject* module) {
    for (Exception& each : exceptions()) {
        const Ref name(PyUnicode_FromFormat("incast.consumer.%s", each.name));
        const char* qualified = name ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
        PyObject* base = each.status == 0 ? PyExc_RuntimeError : exceptions().front().type;
        each.type = qualified == nullptr ? nullptr : PyErr_NewExceptionWithDoc(qualified, each.says, base, nullptr);
        if (!add(module, each.name, each.type)) return false;
    }
    return true;
}

PyObject* fail(int status, const char* where) {
    const int code = errno;
    const Exception* kind = &exceptions().front();
    for (const Exception& each : exceptions()) {
        if (each.status == status) kind = &each;
    }
    const char* text = incast_consumer_text(status);
    const Ref said(status == INCAST_CONSUMER_SYSTEM
                       ? PyUnicode_FromFormat("%s: %s (%s)", where, text, std::system_category().message(code).c_str())
                       : PyUnicode_FromFormat("%s: %s", where, text));
    const Ref number(PyLong_FromLong(status));
    if (!said || !number) return nullptr;
    const Ref error(PyObject_CallFunctionObjArgs(kind->type, said.get(), nullptr));
    if (error && PyObject_SetAttrString(error.get(), "status", number.get()) == 0) {
        PyErr_SetObject(kind->type, error.get());
    }
    return nullptr;
}

PyObject* fail_of(const Handle& handle, int status) {
    const Ref where(PyUnicode_FromFormat("node %u", handle.info.node));
    return where ? fail(status, PyUnicode_AsUTF8AndSize(where.get(), nullptr)) : nullptr;
}

namespace {

PyObject* make_module() {
    static PyMethodDef functions[] = {
        {"builders", builders, METH_VARARGS, "The nodes of this host whose builder units take consumers."}, {}};
    static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "incast._consumer", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};
    Ref made(PyModule_Create(&definition));
    const Ref numpy(PyImport_ImportModule("numpy"));
    if (!made || !numpy) return nullptr;
    Types& all = types();
    all.frombuffer = PyObject_GetAttrString(numpy.get(), "frombuffer");
    all.uint8 = PyObject_GetAttrString(numpy.get(), "uint8");
    all.handle = make_handle_type();
    all.event = make_event_type();
    all.group = make_group_type();
    all.loop = make_loop_type();
    const bool complete = all.frombuffer != nullptr && all.uint8 != nullptr && all.loop != nullptr &&
                          add(made.get(), "Handle", all.handle) && add(made.get(), "Event", all.event) &&
                          add(made.get(), "Group", all.group) && add_exceptions(made.get());
    return complete ? made.release() : nullptr;
}

}  // namespace
}  // namespace incast::consumer_python

// The name is Python's.
PyMODINIT_FUNC PyInit__consumer();   // NOLINT(bugprone-reserved-identifier,readability-identifier-naming)
PyMODINIT_FUNC PyInit__consumer() {  // NOLINT(bugprone-reserved-identifier,readability-identifier-naming)
    return incast::consumer_python::make_module();
}
