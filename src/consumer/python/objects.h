// What Python holds of libincast_consumer: a handle on one builder unit, its events, and several handles as one. The
// module `incast._consumer`, on which python/incast/consumer.py is built, is written against Python's stable interface
// (3.11), so one build serves every later Python.
//
// Why it is compiled: after a wake-up the caches of the core hold payload in place of the interpreter, so an event
// costs what is touched for it, and through ctypes it takes 1.35 times the CPU time (docs/experiments.md).
#pragma once

#include <utility>
#include <vector>

// Python's own headers come first where they are included at all; they lay down what the C library declares.
#include <Python.h>

#include <incast/consumer.h>

namespace incast::consumer_python {

/// A reference that is counted, or none.
class Ref {
public:
    Ref() = default;
    /// Takes over one that the caller was given.
    explicit Ref(PyObject* owned) : object_(owned) {}
    static Ref share(PyObject* borrowed) {
        Py_XINCREF(borrowed);
        return Ref(borrowed);
    }
    Ref(const Ref&) = delete;
    Ref& operator=(const Ref&) = delete;
    Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Ref& operator=(Ref&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Ref() { Py_XDECREF(object_); }

    [[nodiscard]] PyObject* get() const { return object_; }
    PyObject* release() { return std::exchange(object_, nullptr); }
    explicit operator bool() const { return object_ != nullptr; }

private:
    PyObject* object_ = nullptr;
};

// Python makes their memory, zeroed: what has a constructor is constructed by whoever asked for it, and destroyed by
// the type's dealloc. None of them can be part of a cycle, so the collector need not know them.

/// One builder unit, and the memory of its events: arrays that lie there keep it.
struct Handle {
    PyObject_HEAD incast_consumer* consumer;
    incast_consumer_info info;
};

/// One MEP. With an array of all the memory of its builder unit it is the loop's that took it, which gives it back;
/// without one it is its caller's, and what is sliced keeps it.
struct Event {
    PyObject_HEAD incast_consumer_event event;
    Ref handle;
    Ref memory;
    bool released;
};

/// Several handles, each with an array of all of its memory.
struct Group {
    struct Member {
        Ref handle;
        Ref memory;
    };
    PyObject_HEAD incast_consumer_group* group;
    Ref event_type;
    std::vector<Member> members;
};

/// A `for` loop over a group: an event is given back when the next one is asked for, and when the loop is left.
struct Loop {
    PyObject_HEAD Ref group;
    Ref current;
};

inline Handle& handle_of(PyObject* object) {
    return *reinterpret_cast<Handle*>(object);
}
inline Event& event_of(PyObject* object) {
    return *reinterpret_cast<Event*>(object);
}
inline Group& group_of(PyObject* object) {
    return *reinterpret_cast<Group*>(object);
}
inline Loop& loop_of(PyObject* object) {
    return *reinterpret_cast<Loop*>(object);
}

// Each makes its type; null: an exception is set.
PyObject* make_handle_type();
PyObject* make_event_type();
PyObject* make_group_type();
PyObject* make_loop_type();

/// Set once, when the module is made: what the stable interface has no other place for.
struct Types {
    PyObject* handle = nullptr;
    PyObject* event = nullptr;
    PyObject* group = nullptr;
    PyObject* loop = nullptr;
    PyObject* frombuffer = nullptr;  // numpy's
    PyObject* uint8 = nullptr;
};
Types& types();

/// The end of a dealloc: a class that is derived in Python may be of another kind of memory than its base.
inline void free_object(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}
/// A new event of that type, which is types().event or derived from it, to be filled in; null: an exception is set.
Ref new_event(PyObject* type);
/// Whether new_event() can make one; if not, an exception is set.
bool is_event_type(PyObject* type);
/// What the library says, as the exception for it; `where` is whose it is. For a return statement.
PyObject* fail(int status, const char* where);
/// As `fail`, of one builder unit.
PyObject* fail_of(const Handle& handle, int status);
/// For a buffer: all the memory of that builder unit, for reading only; `owner` is what the view keeps.
int show_memory(const Handle& handle, PyObject* owner, Py_buffer* view, int flags);
/// The classes of exceptions, which become the module's; false: an exception is set.
bool add_exceptions(PyObject* module);

}  // namespace incast::consumer_python
