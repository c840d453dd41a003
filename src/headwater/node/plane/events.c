/* Waiting on epoll, as select.epoll.poll does it, with less around the one system call.
 *
 * Theory. A broker that sleeps between two messages comes back to caches that hold others' things, and what counts then
 * is how much code and memory a turn touches. select.epoll.poll parses its arguments by a format, converts its timeout
 * by way of nanoseconds, takes memory for its events and builds each pair by a format again: half a microsecond or more,
 * in each turn. Here all of that is a few instructions. The interpreter's lock is given up while it waits, as there.
 *
 * A short wait, such as a relay's rest of some hundred microseconds, ends when it is over, and not with the next whole
 * millisecond, where the system has epoll_pwait2 (Linux 5.11) and lets us call it.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 256       /* events at a time */
#define SHORT_WAIT 0.01 /* seconds, below which a millisecond counts */

typedef struct {
    PyObject_HEAD
    PyObject *epoll; /* keeps its descriptor open */
    int fd;
} Events;

static double clock_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Whole milliseconds, rounded up: who waits until a moment must not wake before it. */
static int milliseconds(double seconds) {
    if (seconds < 0) return -1;
    double wait = seconds * 1000.0;
    if (wait >= (double)INT_MAX) return INT_MAX;
    int whole = (int)wait;
    return (double)whole < wait ? whole + 1 : whole;
}

#if defined(SYS_epoll_pwait2) && __SIZEOF_LONG__ == 8
static int is_exact = 1; /* as far as we know */

static int wait_once(int fd, struct epoll_event *found, int most, double seconds) {
    if (is_exact && seconds > 0 && seconds < SHORT_WAIT) {
        struct timespec wait = {0, (long)(seconds * 1e9) + 1};
        int count = (int)syscall(SYS_epoll_pwait2, fd, found, most, &wait, NULL, (size_t)0);
        if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return count;
        is_exact = 0;
    }
    return epoll_wait(fd, found, most, milliseconds(seconds));
}
#else
static int wait_once(int fd, struct epoll_event *found, int most, double seconds) {
    return epoll_wait(fd, found, most, milliseconds(seconds));
}
#endif

/* As often as signals interrupt it, until the time is over; less than 0 with an error set. */
static int wait_for(int fd, struct epoll_event *found, int most, double seconds) {
    double until = 0.0;
    for (;;) {
        int count;
        Py_BEGIN_ALLOW_THREADS
        count = wait_once(fd, found, most, seconds);
        Py_END_ALLOW_THREADS
        if (count >= 0) return count;
        if (errno != EINTR) {
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        if (PyErr_CheckSignals() < 0) return -1;
        if (seconds <= 0) continue;
        double now = clock_now();
        if (until == 0.0) until = now + seconds; /* a little late at most, and only where a signal came */
        seconds = until > now ? until - now : 0.0;
    }
}

PyDoc_STRVAR(poll_doc, "poll(timeout, most): descriptors and their masks; timeout in seconds, negative: no limit.");
static PyObject *events_poll(Events *self, PyObject *const *arguments, Py_ssize_t given) {
    struct epoll_event found[MOST];
    if (given != 2) return PyErr_Format(PyExc_TypeError, "poll(timeout, most)");
    double seconds = PyFloat_AsDouble(arguments[0]);
    long most = PyLong_AsLong(arguments[1]);
    if (PyErr_Occurred()) return NULL;
    if (most < 1) return PyErr_Format(PyExc_ValueError, "at least one event");
    int count = wait_for(self->fd, found, most < MOST ? (int)most : MOST, seconds);
    PyObject *events = count < 0 ? NULL : PyList_New(count);
    for (int each = 0; events && each < count; each++) {
        PyObject *pair = PyTuple_New(2);
        PyObject *fd = PyLong_FromLong(found[each].data.fd);
        PyObject *mask = PyLong_FromUnsignedLong(found[each].events);
        if (!pair || !fd || !mask) {
            Py_XDECREF(pair);
            Py_XDECREF(fd);
            Py_XDECREF(mask);
            Py_CLEAR(events);
            break;
        }
        PyTuple_SET_ITEM(pair, 0, fd);
        PyTuple_SET_ITEM(pair, 1, mask);
        PyList_SET_ITEM(events, each, pair);
    }
    return events;
}

static PyObject *events_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    PyObject *epoll;
    if (names && PyDict_GET_SIZE(names)) return PyErr_Format(PyExc_TypeError, "Events takes no names");
    if (!PyArg_ParseTuple(arguments, "O:Events", &epoll)) return NULL;
    int fd = PyObject_AsFileDescriptor(epoll);
    Events *self = fd < 0 ? NULL : (Events *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->epoll = Py_NewRef(epoll);
    self->fd = fd;
    return (PyObject *)self;
}

static void events_dealloc(Events *self) {
    Py_XDECREF(self->epoll);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef methods[] = {
    {"poll", (PyCFunction)(void (*)(void))events_poll, METH_FASTCALL, poll_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject EventsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headwater.node.plane.events.Events",
    .tp_basicsize = sizeof(Events),
    .tp_dealloc = (destructor)events_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = PyDoc_STR("Events(epoll): what select.epoll tells, faster."),
    .tp_methods = methods,
    .tp_new = events_new,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "headwater.node.plane.events", "Waiting on epoll.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_events(void) {
    PyObject *made = PyModule_Create(&module);
    if (!made || PyModule_AddType(made, &EventsType) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
