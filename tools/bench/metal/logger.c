/* A pass-through logger of the calls on NVIDIA's device nodes, for LD_PRELOAD: open, ioctl, mmap, close.
 *
 * Each call goes on to the C library. A record of it goes to the file "$RINGUP_CALLS.PID", at most
 * RINGUP_CALLS_BYTES of a process. A record is `struct record`, then the bytes before and after the call, then those of
 * the parameters that the request points to, before and after. For open the bytes are the path.
 * RINGUP_CALLS_NODES: what the nodes' paths begin with, /dev/nvidia unless given.
 * uvm_sizes.h has the sizes of the calls on /dev/nvidia-uvm, whose numbers do not tell them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x4C435552u
#define MAX_NODES 4096
#define MAX_BODY 65536u
/* nv_escape.h: requests that point to parameters; nvos.h: where pointer and size are, in both lengths */
#define RM_CONTROL 0x2Au
#define RM_ALLOC 0x2Bu
#define PARAMS_AT 16u
#define SIZE_AT 24u
#define LONG_ALLOC_BYTES 48u
#define LONG_SIZE_AT 32u

enum kind { OPEN = 1, IOCTL = 2, MAP = 3, CLOSE = 4 };

struct record {
	uint32_t magic, kind;
	int32_t node, thread;
	int64_t result;
	int32_t error;
	uint32_t body_bytes, params_bytes, unused;
	uint64_t request, address, length, offset, nanoseconds;
};

struct size { uint32_t number, bytes; };
static const struct size uvm_sizes[] = {
#include "uvm_sizes.h"
	{ 0, 0 },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char is_node[MAX_NODES], is_uvm[MAX_NODES];
static int log_file = -1;
static pid_t log_of;
static uint64_t bytes_left;

static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static int (*real_ioctl)(int, unsigned long, ...);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static int (*real_close)(int);

__attribute__((constructor)) static void begin(void)
{
	real_open = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
	real_openat = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
	real_ioctl = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	real_mmap = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
	real_close = (int (*)(int))dlsym(RTLD_NEXT, "close");
}

/* Other libraries' constructors may call before ours has run. */
static void ready(void)
{
	if (!real_close)
		begin();
}

/* Return the file of this process, -1 for none. Called with the lock held. */
static int file(void)
{
	const char *stem = getenv("RINGUP_CALLS"), *limit = getenv("RINGUP_CALLS_BYTES");
	char path[4096];
	pid_t me = getpid();

	/* a child of fork has its parent's file */
	if (log_of == me)
		return log_file;
	log_of = me;
	log_file = -1;
	bytes_left = limit ? strtoull(limit, NULL, 0) : 0;
	if (stem && snprintf(path, sizeof path, "%s.%d", stem, (int)me) < (int)sizeof path)
		log_file = real_open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return log_file;
}

/* Write one record. A file that is full gets no more. */
static void note(struct record *record, const void *before, const void *after, const void *params_before,
		 const void *params_after)
{
	uint32_t body = record->body_bytes, params = record->params_bytes;
	struct iovec parts[5] = {
		{ record, sizeof *record },
		{ (void *)before, before ? body : 0 },
		{ (void *)after, after ? body : 0 },
		{ (void *)params_before, params_before ? params : 0 },
		{ (void *)params_after, params_after ? params : 0 },
	};
	uint64_t size = sizeof *record + 2 * (uint64_t)body + 2 * (uint64_t)params;
	struct timespec now;
	int saved = errno, out;

	clock_gettime(CLOCK_MONOTONIC, &now);
	record->magic = MAGIC;
	record->nanoseconds = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	record->thread = (int32_t)syscall(SYS_gettid);
	pthread_mutex_lock(&lock);
	out = file();
	if (out >= 0 && size <= bytes_left) {
		/* a record that is cut short ends the file */
		bytes_left = writev(out, parts, 5) == (ssize_t)size ? bytes_left - size : 0;
	} else {
		bytes_left = 0;
	}
	pthread_mutex_unlock(&lock);
	errno = saved;
}

/* Copy memory of this process that may not be there; return whether it was. */
static int fetch(void *target, uint64_t address, size_t size)
{
	struct iovec to = { target, size }, from = { (void *)(uintptr_t)address, size };

	return address && process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)size;
}

static void opened(const char *path, int node)
{
	const char *start = getenv("RINGUP_CALLS_NODES");
	struct record record = { .kind = OPEN, .node = node, .result = node, .error = node < 0 ? errno : 0 };

	start = start ? start : "/dev/nvidia";
	if (node >= 0 && node < MAX_NODES)
		is_node[node] = is_uvm[node] = 0;
	if (!path || strncmp(path, start, strlen(start)))
		return;
	if (node >= 0 && node < MAX_NODES) {
		is_node[node] = 1;
		is_uvm[node] = strstr(path, "nvidia-uvm") != NULL;
	}
	record.body_bytes = (uint32_t)strnlen(path, 4096);
	note(&record, path, path, NULL, NULL);
}

static int watched(int node)
{
	return node >= 0 && node < MAX_NODES && is_node[node];
}

#define MODE(flags, last) \
	mode_t mode = 0; \
	if ((flags) & (O_CREAT | __O_TMPFILE)) { \
		va_list words; \
		va_start(words, last); \
		mode = va_arg(words, mode_t); \
		va_end(words); \
	}

int open(const char *path, int flags, ...)
{
	MODE(flags, flags)
	ready();
	int node = real_open(path, flags, mode);
	opened(path, node);
	return node;
}

int open64(const char *path, int flags, ...)
{
	MODE(flags, flags)
	ready();
	int node = real_open(path, flags | O_LARGEFILE, mode);
	opened(path, node);
	return node;
}

int openat(int folder, const char *path, int flags, ...)
{
	MODE(flags, flags)
	ready();
	int node = real_openat(folder, path, flags, mode);
	opened(path, node);
	return node;
}

int openat64(int folder, const char *path, int flags, ...)
{
	MODE(flags, flags)
	ready();
	int node = real_openat(folder, path, flags | O_LARGEFILE, mode);
	opened(path, node);
	return node;
}

int close(int node)
{
	int was = watched(node), result;

	ready();
	if (was)
		is_node[node] = is_uvm[node] = 0;
	result = real_close(node);
	if (was) {
		struct record record = { .kind = CLOSE, .node = node, .result = result, .error = result ? errno : 0 };
		note(&record, NULL, NULL, NULL, NULL);
	}
	return result;
}

static void *mapped(void *wanted, size_t length, int protection, int flags, int node, off_t offset)
{
	ready();
	void *address = real_mmap(wanted, length, protection, flags, node, offset);
	if (watched(node)) {
		struct record record = {
			.kind = MAP, .node = node, .result = address == MAP_FAILED ? -1 : 0,
			.error = address == MAP_FAILED ? errno : 0, .request = (uint64_t)protection << 32 | (uint32_t)flags,
			.address = (uintptr_t)address, .length = length, .offset = (uint64_t)offset,
		};
		note(&record, NULL, NULL, NULL, NULL);
	}
	return address;
}

void *mmap(void *wanted, size_t length, int protection, int flags, int node, off_t offset)
{
	return mapped(wanted, length, protection, flags, node, offset);
}

void *mmap64(void *wanted, size_t length, int protection, int flags, int node, off64_t offset)
{
	return mapped(wanted, length, protection, flags, node, (off_t)offset);
}

static uint32_t body_bytes(int node, unsigned long request)
{
	if (!is_uvm[node])
		return _IOC_SIZE(request);
	for (const struct size *row = uvm_sizes; row->bytes; row++)
		if (row->number == request)
			return row->bytes;
	return 0;
}

/* Find the parameters that a request of the resource manager points to. */
static uint32_t params_of(int node, unsigned long request, const unsigned char *body, uint32_t bytes, uint64_t *at)
{
	uint32_t number = _IOC_NR(request), size_at = SIZE_AT, size;

	if (is_uvm[node] || (number != RM_CONTROL && number != RM_ALLOC))
		return 0;
	if (number == RM_ALLOC && bytes >= LONG_ALLOC_BYTES)
		size_at = LONG_SIZE_AT;
	if (bytes < size_at + sizeof size)
		return 0;
	memcpy(at, body + PARAMS_AT, sizeof *at);
	memcpy(&size, body + size_at, sizeof size);
	return *at && size <= MAX_BODY ? size : 0;
}

int ioctl(int node, unsigned long request, ...)
{
	unsigned char *room = NULL, *before, *after, *params_before, *params_after;
	uint64_t at = 0;
	uint32_t bytes, params = 0;
	va_list words;
	void *argument;
	int result, error;

	va_start(words, request);
	argument = va_arg(words, void *);
	va_end(words);
	ready();
	if (!watched(node))
		return real_ioctl(node, request, argument);
	bytes = body_bytes(node, request);
	if (bytes <= MAX_BODY)
		room = calloc(2 * (size_t)MAX_BODY + 2 * (size_t)(bytes ? bytes : 1), 1);
	if (!room)
		return real_ioctl(node, request, argument);
	before = room;
	after = before + bytes;
	params_before = after + bytes;
	params_after = params_before + MAX_BODY;
	if (bytes && !fetch(before, (uintptr_t)argument, bytes))
		bytes = 0;
	if (bytes)
		params = params_of(node, request, before, bytes, &at);
	if (params && !fetch(params_before, at, params))
		params = 0;
	result = real_ioctl(node, request, argument);
	error = errno;
	if (bytes)
		fetch(after, (uintptr_t)argument, bytes);
	if (params)
		fetch(params_after, at, params);
	{
		struct record record = {
			.kind = IOCTL, .node = node, .result = result, .error = result < 0 ? error : 0,
			.body_bytes = bytes, .params_bytes = params, .request = request, .address = at,
		};
		note(&record, before, after, params_before, params_after);
	}
	free(room);
	errno = error;
	return result;
}
