/* Waiting on epoll, receiving and sending, as Python does it, with less around the one system call.
 *
 * Theory. A broker that sleeps between two messages comes back to caches that hold others' things, and what counts then
 * is how much code and memory a turn touches. select.epoll.poll parses its arguments by a format, converts its timeout
 * by way of nanoseconds, takes memory for its events and builds each pair by a format again: half a microsecond or more,
 * in each turn. Here all of that is a few instructions. The interpreter's lock is given up while it waits, as there.
 *
 * A short wait, such as a relay's rest of some hundred microseconds, ends when it is over, and not with the next whole
 * millisecond, where the system has epoll_pwait2 (Linux 5.11) and lets us call it.
 *
 * socket.recv and socket.send give that lock up as well, and take it again, though what does not block has nothing to
 * wait for; they parse their argument by a format from a tuple made for it, and recv takes memory for all bytes that it
 * asks for and gives most of it back. A Stream keeps the lock unless there is much to copy, and receives what is small
 * into bytes of the right size. It has the descriptor for itself, so it must know when that is closed: by its own
 * `close`, or it would go on with the next socket of the same number.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 256        /* events at a time */
#define SHORT_WAIT 0.01 /* seconds, below which a millisecond counts */
#define SMALL 4096      /* bytes asked for that are received into memory of our own, and copied */
#define MUCH 32768      /* bytes that take long enough to copy for others to have the interpreter meanwhile */

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

typedef struct {
    PyObject_HEAD
    PyObject *socket; /* closes the descriptor */
    int fd;           /* -1: closed */
} Stream;

PyDoc_STRVAR(recv_doc, "recv(size): what is there, at most so much; b'' at its end. Raises OSError, never waits.");
static PyObject *stream_recv(Stream *self, PyObject *argument) {
    char found[SMALL];
    ssize_t count;
    long size = PyLong_AsLong(argument);
    if (size < 0) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a negative size");
    if (size <= SMALL) {
        count = recv(self->fd, found, (size_t)size, MSG_DONTWAIT);
        return count < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyBytes_FromStringAndSize(found, count);
    }
    PyObject *data = PyBytes_FromStringAndSize(NULL, size);
    if (!data) return NULL;
    int fd = self->fd;
    if (size < MUCH) {
        count = recv(fd, PyBytes_AS_STRING(data), (size_t)size, MSG_DONTWAIT);
    } else {
        Py_BEGIN_ALLOW_THREADS
        count = recv(fd, PyBytes_AS_STRING(data), (size_t)size, MSG_DONTWAIT);
        Py_END_ALLOW_THREADS
    }
    if (count < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(data);
        return NULL;
    }
    if (count != size) _PyBytes_Resize(&data, count);
    return data;
}

PyDoc_STRVAR(send_doc, "send(data): how many of these bytes the socket took. Raises OSError, never waits.");
static PyObject *stream_send(Stream *self, PyObject *data) {
    if (!PyBytes_Check(data)) return PyErr_Format(PyExc_TypeError, "bytes are sent");
    const char *bytes = PyBytes_AS_STRING(data);
    size_t size = (size_t)PyBytes_GET_SIZE(data);
    int fd = self->fd;
    ssize_t count;
    if (size < MUCH) {
        count = send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
        Py_BEGIN_ALLOW_THREADS
        count = send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        Py_END_ALLOW_THREADS
    }
    return count < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromSsize_t(count);
}

PyDoc_STRVAR(close_doc, "close(): the socket, too. More than once is fine.");
static PyObject *stream_close(Stream *self, PyObject *nothing) {
    (void)nothing;
    self->fd = -1;
    return PyObject_CallMethod(self->socket, "close", NULL);
}

static PyObject *stream_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    PyObject *socket;
    if (names && PyDict_GET_SIZE(names)) return PyErr_Format(PyExc_TypeError, "Stream takes no names");
    if (!PyArg_ParseTuple(arguments, "O:Stream", &socket)) return NULL;
    int fd = PyObject_AsFileDescriptor(socket);
    Stream *self = fd < 0 ? NULL : (Stream *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->socket = Py_NewRef(socket);
    self->fd = fd;
    return (PyObject *)self;
}

static void stream_dealloc(Stream *self) {
    Py_XDECREF(self->socket);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef stream_methods[] = {
    {"recv", (PyCFunction)stream_recv, METH_O, recv_doc},
    {"send", (PyCFunction)stream_send, METH_O, send_doc},
    {"close", (PyCFunction)stream_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject StreamType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headwater.node.plane.events.Stream",
    .tp_basicsize = sizeof(Stream),
    .tp_dealloc = (destructor)stream_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = PyDoc_STR("Stream(socket): its recv and send, faster, for a socket that does not block."),
    .tp_methods = stream_methods,
    .tp_new = stream_new,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "headwater.node.plane.events", "Waiting, receiving, sending.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_events(void) {
    PyObject *made = PyModule_Create(&module);
    if (!made || PyModule_AddType(made, &EventsType) < 0 || PyModule_AddType(made, &StreamType) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
