/*
 * A wall clock that a test can set, for a process that the test starts.
 *
 * Load with:    LD_PRELOAD=<this library> REDLOCK_CLOCK=<control file>
 * Replaces:     gettimeofday, time, and clock_gettime of CLOCK_REALTIME and
 *               CLOCK_REALTIME_COARSE. All other clocks stay true, above all
 *               CLOCK_MONOTONIC. So do sleeps and timeouts in the kernel, even
 *               those until a time of day.
 * Control file: struct control below, in the byte order of the machine. Whoever
 *               sets the clock writes it; the library counts itself in `loads`
 *               and writes nothing else.
 * Failure:      a control file that is named but cannot be used ends the
 *               process with a message, so that no test takes the true time for
 *               the one it set. With no file named the clock is true.
 *
 * The true time comes straight from the kernel. The library calls neither
 * malloc nor dlsym: an allocator that asks for the time while it starts would
 * be entered again before it is ready.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(time_t) == 8 && sizeof(long) == 8, "the library is for 64-bit systems");

#define BILLION 1000000000LL

struct control {
	uint64_t seq;   /* odd while the clock is being set: readers wait */
	uint64_t loads; /* how many processes have loaded the library for this file */
	/* When the true CLOCK_MONOTONIC is `mono` ns, the clock shows `fake` ns
	   since 1970, and from there it runs `rate` times as fast as true time. */
	int64_t mono;
	int64_t fake;
	double rate;
};

/* NULL: the clock is true. */
static struct control *control;

static int64_t true_ns(clockid_t id)
{
	struct timespec ts;
	syscall(SYS_clock_gettime, id, &ts);
	return ts.tv_sec * BILLION + ts.tv_nsec;
}

/* The true time is read between the two looks at seq: it is then put into the
   setting that held at that moment, and never into one that was about to end or
   only about to begin, which would make a step where a rate changes. */
static int64_t wall_ns(void)
{
	const volatile struct control *c = control;
	if (c == NULL)
		return true_ns(CLOCK_REALTIME);
	for (;;) {
		uint64_t seq = __atomic_load_n(&c->seq, __ATOMIC_ACQUIRE);
		int64_t elapsed = true_ns(CLOCK_MONOTONIC) - c->mono;
		int64_t ns = c->fake + (int64_t)((double)elapsed * c->rate);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (seq % 2 == 0 && __atomic_load_n(&c->seq, __ATOMIC_RELAXED) == seq)
			return ns;
		sched_yield(); /* whoever sets the clock may need this processor */
	}
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
		return syscall(SYS_clock_gettime, id, ts);
	int64_t ns = wall_ns();
	ts->tv_sec = ns / BILLION;
	ts->tv_nsec = ns % BILLION;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	int64_t ns = wall_ns();
	tv->tv_sec = ns / BILLION;
	tv->tv_usec = ns % BILLION / 1000;
	if (tz != NULL)
		memset(tz, 0, sizeof(struct timezone)); /* as glibc does */
	return 0;
}

time_t time(time_t *t)
{
	time_t s = wall_ns() / BILLION;
	if (t != NULL)
		*t = s;
	return s;
}

static void refuse(const char *file)
{
	const char *message[] = {"clockshim: not a control file: ", file, "\n"};
	for (int i = 0; i < 3; i++)
		if (write(STDERR_FILENO, message[i], strlen(message[i])) < 0)
			break;
	_exit(1);
}

/* Before this has run, libraries that are initialized earlier see true time. */
__attribute__((constructor)) static void load(void)
{
	const char *file = getenv("REDLOCK_CLOCK");
	if (file == NULL)
		return;
	struct stat st;
	int fd = open(file, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0 || st.st_size != sizeof(struct control))
		refuse(file);
	void *m = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		refuse(file);
	close(fd);
	control = m;
	__atomic_fetch_add(&control->loads, 1, __ATOMIC_RELAXED);
}
