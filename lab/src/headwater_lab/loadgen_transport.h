/* What lies between the load generator's clients and their sockets: nothing, or TLS.
 *
 * TLS needs OpenSSL and is there only if the generator is built with LOADGEN_TLS. Theory: one send of a client is one
 * SSL_write, so one packet per send is one record per send, and a batch goes in records of 16 KiB. A read takes all
 * that has come, as `recv` would: what OpenSSL has read from the socket is not on the socket any more, and no event
 * would tell of it (`is_unread`).
 */
#ifndef LOADGEN_TRANSPORT_H
#define LOADGEN_TRANSPORT_H

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *format, ...);
static void *allocate(size_t count, size_t size);

#ifdef LOADGEN_TLS

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>

#define MOST_DESCRIPTORS (1 << 20)
#define READ_AHEAD 65536

static SSL_CTX *tls_context; /* NULL: plain */
static SSL **tls_of;         /* by descriptor */

static void fail_in_tls(const char *what) {
    char reason[256];
    ERR_error_string_n(ERR_peek_last_error(), reason, sizeof reason);
    fail("%s: %s", what, ERR_peek_last_error() ? reason : strerror(errno));
}

/* From now on all connections are secured, by servers whose certificate for 127.0.0.1 `authority` has signed. */
static void use_tls(const char *authority) {
    tls_context = SSL_CTX_new(TLS_client_method());
    if (!tls_context || !SSL_CTX_load_verify_locations(tls_context, authority, NULL)) fail_in_tls("no authority");
    SSL_CTX_set_verify(tls_context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(tls_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_default_read_buffer_len(tls_context, READ_AHEAD);
    tls_of = allocate(MOST_DESCRIPTORS, sizeof *tls_of);
    signal(SIGPIPE, SIG_IGN);
}

static int is_secured(void) { return tls_context != NULL; }

static void secure(int fd) {
    if (!tls_context) return;
    SSL *tls = SSL_new(tls_context);
    if (fd >= MOST_DESCRIPTORS || !tls || !SSL_set_fd(tls, fd)) fail_in_tls("no TLS");
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), "127.0.0.1");
    if (SSL_connect(tls) != 1) fail_in_tls("the TLS handshake failed");
    tls_of[fd] = tls;
}

static const char *cipher_of(int fd) { return SSL_get_cipher(tls_of[fd]); }
static const char *tls_version_of(int fd) { return SSL_get_version(tls_of[fd]); }

/* As of send and recv: -1 with EAGAIN where the socket has nothing or takes nothing, 0 at the end. */
static ssize_t tls_result(SSL *tls, int result) {
    switch (SSL_get_error(tls, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: fail_in_tls("TLS failed");
    }
    return -1;
}

static ssize_t send_bytes(int fd, const void *bytes, size_t count) {
    if (!tls_context) return send(fd, bytes, count, MSG_NOSIGNAL);
    int sent = SSL_write(tls_of[fd], bytes, (int)count);
    return sent > 0 ? sent : tls_result(tls_of[fd], sent);
}

static ssize_t receive_bytes(int fd, void *bytes, size_t count) {
    if (!tls_context) return recv(fd, bytes, count, 0);
    SSL *tls = tls_of[fd];
    size_t total = 0;
    do {
        int got = SSL_read(tls, (char *)bytes + total, (int)(count - total));
        if (got <= 0) return total ? (ssize_t)total : tls_result(tls, got);
        total += (size_t)got;
    } while (total < count && SSL_has_pending(tls));
    return (ssize_t)total;
}

static int is_unread(int fd) { return tls_context && SSL_has_pending(tls_of[fd]); }

static void unblock(int fd) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (tls_context) SSL_set_read_ahead(tls_of[fd], 1);
}

#else

static void use_tls(const char *authority) {
    (void)authority;
    fail("this load generator was built without TLS");
}
static int is_secured(void) { return 0; }
static void secure(int fd) { (void)fd; }
static const char *cipher_of(int fd) { return (void)fd, "none"; }
static const char *tls_version_of(int fd) { return (void)fd, "none"; }
static ssize_t send_bytes(int fd, const void *bytes, size_t count) { return send(fd, bytes, count, MSG_NOSIGNAL); }
static ssize_t receive_bytes(int fd, void *bytes, size_t count) { return recv(fd, bytes, count, 0); }
static int is_unread(int fd) { return (void)fd, 0; }
static void unblock(int fd) { fcntl(fd, F_SETFL, O_NONBLOCK); }

#endif
#endif
