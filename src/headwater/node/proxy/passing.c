/* Bytes from one socket to another, as relay.py passes them on, with less around the two calls of the system.
 *
 * Theory. Of a message that comes alone, most of what a relay costs is the system's, and the rest is an object for the
 * bytes, memory for it, the arguments of two methods, and the interpreter's lock, given up and taken again twice. Here
 * the bytes are read into one buffer that stays in the cache, looked at where they are, and sent from there. It is a
 * short way and never a second meaning: as soon as a packet matters or a header is cut, the bytes are given to the
 * caller, who scans them as ever (scanner.py; tests/node/proxy/test_passing.py compares). The sockets do not block, so
 * the lock is kept: giving it up would take longer than what another thread could do meanwhile.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <sys/socket.h>

#define LARGEST 65536
#define PUBLISH_FLAGS 0xF1
#define RETAINED_PUBLISH 0x31
#define BYTES_BITS 17
#define PACKETS_BITS 17

static unsigned char buffer[LARGEST]; /* of one thread at a time, which holds the interpreter's lock */

/* How many packets begin in these bytes, of which the first `*skip` belong to an earlier one; `*skip` is then what is to
 * come of the last one. -1: something matters, or a header is cut or none. */
static long scan(const unsigned char *data, long size, long *skip, unsigned types, int retained) {
    long at = *skip, packets = 0;
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

PyDoc_STRVAR(pass_on_doc,
             "pass_on(from, to, size, skip, types, retained): read once and send what came. An int: all has gone, so "
             "many bytes, packets << 17, bytes to skip << 34. (int, bytes): the same, but these bytes were not taken. "
             "bytes: what was read and is neither looked at nor sent; b\"\": the end. None: there is nothing to read. "
             "`skip` less than 0: nothing is looked at.");
static PyObject *pass_on(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given != 6) return PyErr_Format(PyExc_TypeError, "pass_on(from, to, size, skip, types, retained)");
    long values[6];
    for (int each = 0; each < 6; each++) values[each] = PyLong_AsLong(arguments[each]);
    if (PyErr_Occurred()) return NULL;
    long most = values[2] < LARGEST ? values[2] : LARGEST, skip = values[3], packets = 0;
    ssize_t size = recv((int)values[0], buffer, most > 0 ? (size_t)most : 0, MSG_DONTWAIT);
    if (size < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) Py_RETURN_NONE;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    if (skip >= 0) packets = scan(buffer, size, &skip, (unsigned)values[4], (int)values[5]);
    else skip = 0;
    if (size == 0 || packets < 0) return PyBytes_FromStringAndSize((const char *)buffer, size);
    ssize_t sent = send((int)values[1], buffer, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) return PyBytes_FromStringAndSize((const char *)buffer, size); /* the caller will see why */
    PyObject *all = PyLong_FromLongLong((long long)size | (long long)packets << BYTES_BITS |
                                        (long long)skip << (BYTES_BITS + PACKETS_BITS));
    if (sent == size || !all) return all;
    return Py_BuildValue("Ny#", all, (const char *)buffer + sent, (Py_ssize_t)(size - sent));
}

static PyMethodDef methods[] = {
    {"pass_on", (PyCFunction)(void (*)(void))pass_on, METH_FASTCALL, pass_on_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headwater.node.proxy.passing", "From one socket to another.", -1, methods, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit_passing(void) { return PyModule_Create(&definition); }
