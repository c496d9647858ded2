/* Prints what each of a process's clocks shows, in ns, one a line. */
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

static void print(const char *name, long long s, long long ns)
{
	printf("%s %lld\n", name, s * 1000000000 + ns);
}

static void print_clock(const char *name, clockid_t id)
{
	struct timespec ts;
	if (clock_gettime(id, &ts) == 0)
		print(name, ts.tv_sec, ts.tv_nsec);
}

int main(void)
{
	struct timeval tv;
	struct timezone tz = {1, 1};
	gettimeofday(&tv, &tz);
	print("gettimeofday", tv.tv_sec, tv.tv_usec * 1000LL);
	print("timezone", 0, tz.tz_minuteswest + tz.tz_dsttime);
	time_t t;
	print("time", time(&t), 0);
	print("*time", t, 0);
	print_clock("CLOCK_REALTIME", CLOCK_REALTIME);
	print_clock("CLOCK_REALTIME_COARSE", CLOCK_REALTIME_COARSE);
	print_clock("CLOCK_MONOTONIC", CLOCK_MONOTONIC);
	print_clock("CLOCK_BOOTTIME", CLOCK_BOOTTIME);
	return 0;
}
