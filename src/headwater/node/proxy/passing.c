/* Bytes from one socket to another, as relay.py passes them on, with less around the two calls of the system.
 *
 * Theory. Of a message that comes alone, nearly all that a relay costs is the system's, and the rest is what stands
 * around its calls: an object for each event and for the bytes, memory for them, look-ups, methods and their arguments.
 * So a turn is served here, from one `epoll_wait` to the last `send`, by a table of passages: for each descriptor that
 * is read from, where its bytes go and what of them matters. What comes is read into one buffer that stays in the
 * cache and is looked at where it is. Some are read from first, as far as the buffer has room, and then those are sent
 * to: so the system's code for the one stays in the cache, too, and who is written to is woken once for many messages.
 *
 * It is a short way and never a second meaning: as soon as a packet matters or a header is cut, a connection ends, or a
 * socket does not take all, the caller has what was read and does as ever (scanner.py, relay.py;
 * tests/node/proxy/test_passing.py compares). The sockets do not block, so the interpreter's lock is kept: giving it up
 * would take longer than what another thread could do meanwhile.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define LARGEST 65536
#define SMALL_READ 1024
#define MOST 128      /* events of a turn */
#define MOST_READS 32 /* before what was read is sent: more would keep the first ones waiting, and save little */
#define PUBLISH_FLAGS 0xF1
#define RETAINED_PUBLISH 0x31

enum { UNTOUCHED, READ, REST, FAILED }; /* what is left to the caller (passing.pyi) */

typedef struct {
    long skip; /* bytes until the next header; less than 0: nothing is looked at */
    long long packets;
    int to; /* less than 0: there is no passage */
    int size;
    unsigned types;
    int is_client;
} Passage;

typedef struct {
    int fd, start, size, packets;
    long skip;
    Passage *passage;
} Read;

typedef struct {
    PyObject_HEAD
    PyObject *epoll; /* keeps its descriptor open */
    int fd;
    int enough, burst; /* packets in a read (pacing.py) */
    Passage *passages; /* by descriptor */
    int room;
} Passages;

/* Of one turn. */
typedef struct {
    int reads, small, bursts;
    long long from_clients, from_broker;
    long unsent;
    PyObject *left;
} Turn;

static unsigned char buffer[LARGEST]; /* of one thread at a time, which holds the interpreter's lock */

/* How many packets begin in these bytes, of which the first `*skip` belong to an earlier one; `*skip` is then what is to
 * come of the last one. -1: something matters, or a header is cut or none. */
static int scan(const unsigned char *data, long size, long *skip, unsigned types, int retained) {
    long at = *skip;
    int packets = 0;
    while (at < size) {
        unsigned first = data[at];
        long start = at + 1, length = 0;
        int shift = 0;
        for (;;) {
            if (start == size || shift > 21) return -1;
            unsigned byte = data[start++];
            length |= (long)(byte & 0x7F) << shift;
            if (byte < 0x80) break;
            shift += 7;
        }
        if (types >> (first >> 4) & 1 || (retained && (first & PUBLISH_FLAGS) == RETAINED_PUBLISH)) return -1;
        packets++;
        at = start + length;
    }
    *skip = at - size;
    return packets;
}

static Passage *passage_of(Passages *self, long fd) {
    return fd >= 0 && fd < self->room && self->passages[fd].to >= 0 ? &self->passages[fd] : NULL;
}

static int make_room(Passages *self, long fd) {
    if (fd < self->room) return 0;
    int room = self->room ? self->room : 64;
    while (room <= fd) room *= 2;
    Passage *more = PyMem_Realloc(self->passages, (size_t)room * sizeof(Passage));
    if (!more) return -1;
    for (int each = self->room; each < room; each++) more[each].to = -1;
    self->passages = more;
    self->room = room;
    return 0;
}

/* The caller has to deal with it. */
static void leave(Turn *turn, int fd, unsigned mask, int kind, const unsigned char *data, long size) {
    if (!turn->left) turn->left = PyList_New(0);
    PyObject *each = turn->left ? Py_BuildValue("iIiy#", fd, mask, kind, (const char *)data, (Py_ssize_t)size) : NULL;
    if (!each || PyList_Append(turn->left, each) < 0) {
        PyErr_Clear(); /* there is no memory: rather no connection than one that lacks bytes */
        shutdown(fd, SHUT_RDWR);
    }
    Py_XDECREF(each);
    turn->unsent += size;
}

static void count(Passages *self, Turn *turn, Passage *passage, long size, int packets) {
    if (passage->is_client) turn->from_clients += size;
    else turn->from_broker += size;
    if (size == passage->size) passage->size = size * 2 < LARGEST ? (int)size * 2 : LARGEST;
    if (passage->skip < 0) return;
    turn->reads++;
    if (packets < self->enough) turn->small++;
    if (packets >= self->burst) turn->bursts++;
}

/* Send what was read. */
static void send_all(Passages *self, Turn *turn, const Read *reads, int number) {
    for (const Read *each = reads; each < reads + number; each++) {
        Passage *passage = each->passage;
        const unsigned char *data = buffer + each->start;
        ssize_t sent = send(passage->to, data, (size_t)each->size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent <= 0) {
            leave(turn, each->fd, EPOLLIN, READ, data, each->size); /* the caller will see why */
            continue;
        }
        count(self, turn, passage, each->size, each->packets);
        passage->packets += each->packets;
        passage->skip = each->skip;
        if (sent < each->size) leave(turn, each->fd, EPOLLIN, REST, data + sent, each->size - sent);
    }
}

PyDoc_STRVAR(serve_doc, "serve(most, room): serve so many sockets that are ready; see passing.pyi.");
static PyObject *passages_serve(Passages *self, PyObject *const *arguments, Py_ssize_t given) {
    struct epoll_event found[MOST];
    Read reads[MOST_READS];
    Turn turn = {0};
    if (given != 2) return PyErr_Format(PyExc_TypeError, "serve(most, room)");
    long most = PyLong_AsLong(arguments[0]), room = PyLong_AsLong(arguments[1]);
    if (PyErr_Occurred()) return NULL;
    if (most < 1) return PyErr_Format(PyExc_ValueError, "at least one event");
    int events = epoll_wait(self->fd, found, most < MOST ? (int)most : MOST, 0);
    if (events < 0 && errno != EINTR) return PyErr_SetFromErrno(PyExc_OSError);
    int number = 0, used = 0;
    for (int each = 0; each < events; each++) {
        int fd = found[each].data.fd;
        Passage *passage = found[each].events == EPOLLIN ? passage_of(self, fd) : NULL;
        if (!passage) {
            leave(&turn, fd, found[each].events, UNTOUCHED, buffer, 0);
            continue;
        }
        int size = turn.unsent > room ? SMALL_READ : passage->size;
        if (number == MOST_READS || LARGEST - used < size) {
            send_all(self, &turn, reads, number);
            number = used = 0;
        }
        unsigned char *data = buffer + used;
        ssize_t got = recv(fd, data, (size_t)size, MSG_DONTWAIT);
        if (got < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) continue;
            leave(&turn, fd, EPOLLIN, FAILED, buffer, 0);
            continue;
        }
        long skip = passage->skip;
        int packets = skip < 0 ? 0 : scan(data, got, &skip, passage->types, passage->is_client);
        if (got == 0 || packets < 0) {
            leave(&turn, fd, EPOLLIN, READ, data, got);
            continue;
        }
        reads[number++] = (Read){fd, used, (int)got, packets, skip, passage};
        used += (int)got;
    }
    send_all(self, &turn, reads, number);
    return Py_BuildValue("iiiiLLN", events, turn.reads, turn.small, turn.bursts, turn.from_clients, turn.from_broker,
                         turn.left ? turn.left : Py_NewRef(Py_None));
}

PyDoc_STRVAR(open_doc, "open(fd, to, size, skip, types, is_client): what comes from `fd` goes to `to`.");
static PyObject *passages_open(Passages *self, PyObject *const *arguments, Py_ssize_t given) {
    if (given != 6) return PyErr_Format(PyExc_TypeError, "open(fd, to, size, skip, types, is_client)");
    long values[6];
    for (int each = 0; each < 6; each++) values[each] = PyLong_AsLong(arguments[each]);
    if (PyErr_Occurred()) return NULL;
    if (values[0] < 0 || values[0] > 1 << 28 || values[1] < 0 || values[2] < 1 || values[2] > LARGEST)
        return PyErr_Format(PyExc_ValueError, "no such passage");
    if (make_room(self, values[0]) < 0) return PyErr_NoMemory();
    self->passages[values[0]] =
        (Passage){values[3], 0, (int)values[1], (int)values[2], (unsigned)values[4], (int)values[5]};
    Py_RETURN_NONE;
}

PyDoc_STRVAR(close_doc, "close(fd): size, skip and packets, or None where there is no passage.");
static PyObject *passages_close(Passages *self, PyObject *argument) {
    long fd = PyLong_AsLong(argument);
    if (PyErr_Occurred()) return NULL;
    Passage *passage = passage_of(self, fd);
    if (!passage) Py_RETURN_NONE;
    passage->to = -1;
    return Py_BuildValue("ilL", passage->size, passage->skip, passage->packets);
}

static PyObject *passages_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    PyObject *epoll;
    int enough, burst;
    if (names && PyDict_GET_SIZE(names)) return PyErr_Format(PyExc_TypeError, "Passages takes no names");
    if (!PyArg_ParseTuple(arguments, "Oii:Passages", &epoll, &enough, &burst)) return NULL;
    int fd = PyObject_AsFileDescriptor(epoll);
    Passages *self = fd < 0 ? NULL : (Passages *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->epoll = Py_NewRef(epoll);
    self->fd = fd;
    self->enough = enough;
    self->burst = burst;
    return (PyObject *)self;
}

static void passages_dealloc(Passages *self) {
    Py_XDECREF(self->epoll);
    PyMem_Free(self->passages);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef methods[] = {
    {"serve", (PyCFunction)(void (*)(void))passages_serve, METH_FASTCALL, serve_doc},
    {"open", (PyCFunction)(void (*)(void))passages_open, METH_FASTCALL, open_doc},
    {"close", (PyCFunction)passages_close, METH_O, close_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject PassagesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headwater.node.proxy.passing.Passages",
    .tp_basicsize = sizeof(Passages),
    .tp_dealloc = (destructor)passages_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = PyDoc_STR("Passages(epoll, enough, burst): from one socket to another."),
    .tp_methods = methods,
    .tp_new = passages_new,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headwater.node.proxy.passing", "From one socket to another.", -1, NULL, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit_passing(void) {
    PyObject *made = PyModule_Create(&definition);
    if (!made || PyModule_AddType(made, &PassagesType) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
