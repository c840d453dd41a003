/* The records of an established TLS connection, without Python's ssl in between.
 *
 * Theory. One record in and one record out take six calls of Python by way of `ssl` (recv, MemoryBIO.write, read; write,
 * MemoryBIO.read, send), and each of them gives up the interpreter's lock and takes it again. In a busy process that is
 * hardly seen. In one that sleeps between two messages everything it touches has to be fetched anew, and it is a sixth
 * of all user time. Here it is one call in and one out, and the lock is kept: nothing here waits.
 *
 * `ssl` makes the connection and stays its owner: handshake, certificates, close_notify and whatever is not ordinary
 * are its own. We call the same functions of the same OpenSSL on the same connection, between the same two memory BIOs.
 * So it does not matter to it who read the last record. Only the functions' names are needed, which OpenSSL has kept
 * since 1.1.0; they are looked up in the library that `_ssl` itself has loaded. No headers, no linking.
 *
 * The connection is not among what `_ssl` shows, so it is taken from where it lies in `_ssl`'s object. That place is
 * believed only if its neighbours are what they should be: the context, and that context's and both BIOs' pointers as
 * OpenSSL gives them for this connection. Otherwise (another Python, another build) there is an error, and the caller
 * goes on with `ssl`.
 *
 * Handshakes. A step of a handshake signs, or verifies, for 0.2 ms and cannot be divided. A thread does it that never
 * takes the interpreter's lock: so the broker's loop goes on, and never waits for that thread, whatever its priority,
 * which is low. It is given a connection, is its only user until it gives it back, and says by an eventfd that it has.
 * There is no lock between the two either: a thread of low priority that is put aside while it has one makes the loop
 * wait (200 ms were seen). Each way is a ring with one writer and one reader.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RECORD 16384            /* plain bytes in a record at most */
#define LONGEST (RECORD + 1024) /* a record, encrypted; with an answer of TLS itself in front of it */
#define FIRST_READ 464
#define LARGEST_READ 61440

#define WANT_READ 2
#define ZERO_RETURN 6

typedef void SSL;
typedef void BIO;

static int (*SSL_read)(SSL *, void *, int);
static int (*SSL_write)(SSL *, const void *, int);
static int (*SSL_get_error)(const SSL *, int);
static void *(*SSL_get_SSL_CTX)(const SSL *);
static BIO *(*SSL_get_rbio)(const SSL *);
static BIO *(*SSL_get_wbio)(const SSL *);
static int (*BIO_read)(BIO *, void *, int);
static int (*BIO_write)(BIO *, const void *, int);
static size_t (*BIO_ctrl_pending)(BIO *);
static unsigned long (*ERR_peek_last_error)(void);
static const char *(*ERR_reason_error_string)(unsigned long);
static void (*ERR_clear_error)(void);
static unsigned long (*OpenSSL_version_num)(void);
static int (*SSL_do_handshake)(SSL *);
static long (*SSL_get_verify_result)(const SSL *);
static const char *(*X509_verify_cert_error_string)(long);

/* The beginnings of `_ssl`'s objects. */
typedef struct { PyObject_HEAD PyObject *socket; SSL *ssl; PyObject *context; } Connection;
typedef struct { PyObject_HEAD void *inner; } Holder; /* SSLContext: its SSL_CTX; MemoryBIO: its BIO */

typedef struct {
    PyObject_HEAD
    PyObject *owner; /* keeps the connection, and by it the BIOs */
    SSL *ssl;
    BIO *in, *out;
    int read_size;
    int ended;           /* close_notify has come */
    const char *failure; /* why TLS is broken */
    PyObject *last;      /* what was read when something out of the ordinary came with it */
} Records;

/* For all connections: the interpreter's lock is kept while they are in use. */
static char encrypted[LARGEST_READ];
static char plain[LARGEST_READ + LONGEST];

static const char *reason(void) {
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return text ? text : "unknown";
}

static int descriptor(PyObject *number) {
    int fd = (int)PyLong_AsLong(number);
    if (fd >= 0 || PyErr_Occurred()) return fd;
    errno = EBADF;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

PyDoc_STRVAR(receive_doc, "receive(fd): what came, decrypted; None: see last(). Raises what recv does.");
static PyObject *records_receive(Records *self, PyObject *number) {
    int fd = descriptor(number);
    if (fd < 0) return NULL;
    ssize_t count = recv(fd, encrypted, (size_t)self->read_size, MSG_DONTWAIT);
    if (count < 0) return PyErr_SetFromErrno(PyExc_OSError);
    if (count == 0) return PyBytes_FromStringAndSize(NULL, 0);
    if (count == self->read_size && count < LARGEST_READ)
        self->read_size = count * 2 < LARGEST_READ ? (int)count * 2 : LARGEST_READ;
    if (BIO_write(self->in, encrypted, (int)count) != count) return PyErr_NoMemory();
    int total = 0;
    do { /* `plain` has room for all that is inside: less than one record was left there before */
        int got = SSL_read(self->ssl, plain + total, (int)sizeof plain - total);
        if (got <= 0) {
            int kind = SSL_get_error(self->ssl, got);
            if (kind == ZERO_RETURN) self->ended = 1;
            else if (kind != WANT_READ) self->failure = reason();
            break;
        }
        total += got;
    } while (BIO_ctrl_pending(self->in) && total < (int)sizeof plain);
    PyObject *data = PyBytes_FromStringAndSize(plain, total);
    if (!data || (total && !self->ended && !self->failure && !BIO_ctrl_pending(self->out))) return data;
    Py_XSETREF(self->last, data);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(last_doc, "last(): after None from receive: what came (perhaps nothing), whether close_notify did, and why"
                       " TLS is broken or None. TLS itself may have something to say.");
static PyObject *records_last(Records *self, PyObject *unused) {
    (void)unused;
    PyObject *data = self->last ? self->last : PyBytes_FromStringAndSize(NULL, 0);
    self->last = NULL;
    return data ? Py_BuildValue("(NOz)", data, self->ended ? Py_True : Py_False, self->failure) : NULL;
}

PyDoc_STRVAR(send_doc, "send(fd, data): encrypt at most 16384 bytes and send them; returns what the socket did not take,"
                       " encrypted, or None.");
static PyObject *records_send(Records *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2 || !PyBytes_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "send(fd, data)");
        return NULL;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(arguments[1]);
    if (size < 1 || size > RECORD) {
        PyErr_SetString(PyExc_ValueError, "not of a record's size");
        return NULL;
    }
    int fd = descriptor(arguments[0]);
    if (fd < 0) return NULL;
    if (SSL_write(self->ssl, PyBytes_AS_STRING(arguments[1]), (int)size) != size) {
        PyErr_SetString(PyExc_ConnectionAbortedError, reason());
        return NULL;
    }
    int length = BIO_read(self->out, encrypted, (int)sizeof encrypted);
    ssize_t sent = send(fd, encrypted, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == length) Py_RETURN_NONE;
    if (sent < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return PyErr_SetFromErrno(PyExc_OSError);
        sent = 0;
    }
    return PyBytes_FromStringAndSize(encrypted + sent, length - sent);
}

static void *inner(PyObject *holder) {
    return Py_TYPE(holder)->tp_basicsize >= (Py_ssize_t)sizeof(Holder) ? ((Holder *)holder)->inner : NULL;
}

/* The connection in `_ssl`'s object; NULL if that looks otherwise than we know it. */
static SSL *connection_in(PyObject *owner, PyObject *context, PyObject *incoming, PyObject *outgoing) {
    if (Py_TYPE(owner)->tp_basicsize < (Py_ssize_t)sizeof(Connection)) return NULL;
    Connection *found = (Connection *)owner;
    if (found->context != context || !found->ssl) return NULL;
    void *its_context = SSL_get_SSL_CTX(found->ssl);
    if (!its_context || its_context != inner(context)) return NULL;
    BIO *in = SSL_get_rbio(found->ssl), *out = SSL_get_wbio(found->ssl);
    if (!in || !out || in != inner(incoming) || out != inner(outgoing)) return NULL;
    return found->ssl;
}

static PyObject *records_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    PyObject *owner, *context, *incoming, *outgoing;
    if (names && PyDict_GET_SIZE(names)) return PyErr_Format(PyExc_TypeError, "Records takes no names");
    if (!PyArg_ParseTuple(arguments, "OOOO:Records", &owner, &context, &incoming, &outgoing)) return NULL;
    SSL *ssl = connection_in(owner, context, incoming, outgoing);
    if (!ssl) return PyErr_Format(PyExc_ValueError, "no connection of a known kind");
    Records *self = (Records *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->owner = Py_NewRef(owner);
    self->ssl = ssl;
    self->in = SSL_get_rbio(ssl);
    self->out = SSL_get_wbio(ssl);
    self->read_size = FIRST_READ;
    return (PyObject *)self;
}

static void records_dealloc(Records *self) {
    Py_XDECREF(self->last);
    Py_XDECREF(self->owner);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef methods[] = {
    {"receive", (PyCFunction)records_receive, METH_O, receive_doc},
    {"last", (PyCFunction)records_last, METH_NOARGS, last_doc},
    {"send", (PyCFunction)(void (*)(void))records_send, METH_FASTCALL, send_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(records_doc, "Records(tls, context, incoming, outgoing): those of a connection whose handshake is over;"
                          " `tls` is SSLObject._sslobj. ValueError if it is not as we know it.");
static PyTypeObject RecordsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headwater.node.transports.openssl.Records",
    .tp_basicsize = sizeof(Records),
    .tp_dealloc = (destructor)records_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = records_doc,
    .tp_methods = methods,
    .tp_new = records_new,
};

/* ---- handshakes ---- */

#define NICE 10
#define PLACES 1024

typedef struct Step {
    struct Step *next;
    SSL *ssl;
    PyObject *owner, *token; /* not touched by the thread */
    int kind;                /* 0: the handshake is over; else as SSL_get_error says */
    const char *why;
    long verified;
} Step;

/* Written by one thread and read by one other. */
typedef struct {
    Step *places[PLACES];
    atomic_uint written, read;
} Ring;

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    Ring waiting, done;
    unsigned under_way; /* of the loop alone; both rings have room for all of them */
    atomic_int ended;
    int started;
    int wanted, fd; /* eventfds: for the thread, for the loop */
} Handshakes;

static void append(Ring *ring, Step *step) {
    unsigned at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    ring->places[at % PLACES] = step;
    atomic_store_explicit(&ring->written, at + 1, memory_order_release);
}

static Step *take_first(Ring *ring) {
    unsigned at = atomic_load_explicit(&ring->read, memory_order_relaxed);
    if (at == atomic_load_explicit(&ring->written, memory_order_acquire)) return NULL;
    Step *step = ring->places[at % PLACES];
    atomic_store_explicit(&ring->read, at + 1, memory_order_release);
    return step;
}

static void tell(int fd) {
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* it is a counter, and never full */
}

static void forget(Step *step) {
    Py_DECREF(step->owner);
    Py_DECREF(step->token);
    free(step);
}

static void do_step(Step *step) {
    ERR_clear_error(); /* each thread has errors of its own */
    int result = SSL_do_handshake(step->ssl);
    step->kind = result == 1 ? 0 : SSL_get_error(step->ssl, result);
    if (step->kind && step->kind != WANT_READ) {
        step->verified = SSL_get_verify_result(step->ssl);
        step->why = step->verified ? X509_verify_cert_error_string(step->verified) : NULL;
        if (!step->why) step->why = ERR_reason_error_string(ERR_peek_last_error());
    }
    ERR_clear_error();
}

static void *shake_hands(void *argument) {
    Handshakes *self = argument;
    struct sched_param none = {0};
    pthread_setschedparam(pthread_self(), SCHED_OTHER, &none); /* a real-time one would not give way */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    while (!atomic_load(&self->ended)) {
        Step *step = take_first(&self->waiting);
        if (!step) {
            uint64_t count;
            ssize_t got = read(self->wanted, &count, sizeof count); /* waits */
            (void)got;
            continue;
        }
        do_step(step);
        append(&self->done, step);
        tell(self->fd);
    }
    return NULL;
}

static PyObject *handshakes_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    if (PyTuple_GET_SIZE(arguments) || (names && PyDict_GET_SIZE(names)))
        return PyErr_Format(PyExc_TypeError, "Handshakes()");
    Handshakes *self = (Handshakes *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    self->wanted = eventfd(0, EFD_CLOEXEC);
    if (self->fd >= 0 && self->wanted >= 0 && !pthread_create(&self->thread, NULL, shake_hands, self)) {
        self->started = 1;
        return (PyObject *)self;
    }
    Py_DECREF(self);
    return PyErr_SetFromErrno(PyExc_OSError);
}

static void handshakes_dealloc(Handshakes *self) {
    if (self->started) {
        atomic_store(&self->ended, 1);
        tell(self->wanted);
        pthread_join(self->thread, NULL); /* a step at most */
    }
    for (Step *step; (step = take_first(&self->waiting)) || (step = take_first(&self->done));) forget(step);
    if (self->fd >= 0) close(self->fd);
    if (self->wanted >= 0) close(self->wanted);
    Py_TYPE(self)->tp_free(self);
}

PyDoc_STRVAR(begin_doc, "begin(tls, context, incoming, outgoing, token): do a step. Until `next` returns the token,"
                        " nobody else may use any of them. ValueError if it is not as we know it.");
static PyObject *handshakes_begin(Handshakes *self, PyObject *arguments) {
    PyObject *owner, *context, *incoming, *outgoing, *token;
    if (!PyArg_ParseTuple(arguments, "OOOOO:begin", &owner, &context, &incoming, &outgoing, &token)) return NULL;
    SSL *ssl = connection_in(owner, context, incoming, outgoing);
    if (!ssl) return PyErr_Format(PyExc_ValueError, "no connection of a known kind");
    if (self->under_way >= PLACES) return PyErr_Format(PyExc_ValueError, "too many steps are under way");
    Step *step = calloc(1, sizeof *step);
    if (!step) return PyErr_NoMemory();
    step->ssl = ssl;
    step->owner = Py_NewRef(owner);
    step->token = Py_NewRef(token);
    self->under_way++;
    append(&self->waiting, step);
    tell(self->wanted);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(next_doc, "next(): (token, kind, why, code) of a step that was done, or None; kind 0: the handshake is over,"
                       " 2: more has to come, else it failed, and code is that of verifying or 0.");
static PyObject *handshakes_next(Handshakes *self, PyObject *unused) {
    (void)unused;
    Step *step = take_first(&self->done);
    if (!step) { /* readable as long as there may be more; who comes now has told, or will */
        uint64_t count;
        ssize_t got = read(self->fd, &count, sizeof count);
        (void)got;
        step = take_first(&self->done);
    }
    if (!step) Py_RETURN_NONE;
    self->under_way--;
    PyObject *told = Py_BuildValue("(Oizl)", step->token, step->kind, step->why, step->verified);
    forget(step);
    return told;
}

static PyObject *handshakes_fileno(Handshakes *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromLong(self->fd);
}

static PyMethodDef handshakes_methods[] = {
    {"begin", (PyCFunction)handshakes_begin, METH_VARARGS, begin_doc},
    {"next", (PyCFunction)handshakes_next, METH_NOARGS, next_doc},
    {"fileno", (PyCFunction)handshakes_fileno, METH_NOARGS, "fileno(): readable when a step was done"},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(handshakes_doc, "Handshakes(): a thread that does steps of handshakes, without the interpreter's lock.");
static PyTypeObject HandshakesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headwater.node.transports.openssl.Handshakes",
    .tp_basicsize = sizeof(Handshakes),
    .tp_dealloc = (destructor)handshakes_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = handshakes_doc,
    .tp_methods = handshakes_methods,
    .tp_new = handshakes_new,
};

static const struct { void *place; const char *name; } functions[] = {
    {&SSL_read, "SSL_read"},
    {&SSL_write, "SSL_write"},
    {&SSL_get_error, "SSL_get_error"},
    {&SSL_get_SSL_CTX, "SSL_get_SSL_CTX"},
    {&SSL_get_rbio, "SSL_get_rbio"},
    {&SSL_get_wbio, "SSL_get_wbio"},
    {&BIO_read, "BIO_read"},
    {&BIO_write, "BIO_write"},
    {&BIO_ctrl_pending, "BIO_ctrl_pending"},
    {&ERR_peek_last_error, "ERR_peek_last_error"},
    {&ERR_reason_error_string, "ERR_reason_error_string"},
    {&ERR_clear_error, "ERR_clear_error"},
    {&OpenSSL_version_num, "OpenSSL_version_num"},
    {&SSL_do_handshake, "SSL_do_handshake"},
    {&SSL_get_verify_result, "SSL_get_verify_result"},
    {&X509_verify_cert_error_string, "X509_verify_cert_error_string"},
};

/* From the library that `_ssl` (a file of its own) has loaded, if it is of the version that `_ssl` names. */
static int find_functions(const char *file, unsigned long version) {
    void *library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD); /* stays open, as _ssl does */
    if (!library) return 0;
    for (size_t each = 0; each < sizeof functions / sizeof *functions; each++) {
        void *found = dlsym(library, functions[each].name);
        if (!found) return 0;
        *(void **)functions[each].place = found;
    }
    return OpenSSL_version_num() == version;
}

static int load(void) {
    PyObject *ssl = PyImport_ImportModule("_ssl");
    PyObject *file = ssl ? PyObject_GetAttrString(ssl, "__file__") : NULL;
    PyObject *version = file ? PyObject_GetAttrString(ssl, "OPENSSL_VERSION_NUMBER") : NULL;
    const char *path = version ? PyUnicode_AsUTF8(file) : NULL;
    int found = path && find_functions(path, PyLong_AsUnsignedLongMask(version));
    Py_XDECREF(version);
    Py_XDECREF(file);
    Py_XDECREF(ssl);
    return found;
}

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "headwater.node.transports.openssl", "The records of a TLS connection.", -1, NULL, NULL, NULL,
    NULL, NULL,
};

PyMODINIT_FUNC PyInit_openssl(void) {
#if defined(Py_GIL_DISABLED) || defined(PYPY_VERSION)
    PyErr_SetString(PyExc_ImportError, "made for CPython with its lock");
    return NULL;
#else
    if (!load()) {
        PyErr_Clear();
        PyErr_SetString(PyExc_ImportError, "Python's ssl has no OpenSSL of its own to be found");
        return NULL;
    }
    PyObject *made = PyModule_Create(&module);
    if (!made || PyModule_AddType(made, &RecordsType) < 0 || PyModule_AddType(made, &HandshakesType) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
#endif
}
