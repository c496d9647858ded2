#!/bin/sh
# Installs what the tests need and the machine does not have: redis-server, for
# the clocks of testkit/clockshim/ a C compiler with the headers of libc, for the
# tests of interop/ node and npm, and for those of fence/gatetest/ the PostgreSQL
# server.
#
# Usage:    scripts/install-deps.sh
# Changes:  nothing if all of them are on PATH (PostgreSQL: or where Debian has
#           it). Otherwise installs the missing ones from Debian's (or Ubuntu's)
#           packages redis-server, gcc, libc6-dev, nodejs, npm and postgresql, as
#           root or through sudo. The services that come with redis-server and postgresql are
#           neither started nor enabled: the tests start servers of their own.
# Exit:     0 when all are there; 1, with a message, when one cannot be
#           installed.
set -eu

missing=
command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
# A compiler is of no use without the headers, which are a package of their own.
if ! echo '#include <time.h>' | cc -E - >/dev/null 2>&1; then
	missing="$missing gcc libc6-dev"
fi
command -v node >/dev/null 2>&1 || missing="$missing nodejs"
command -v npm >/dev/null 2>&1 || missing="$missing npm"
if ! command -v postgres >/dev/null 2>&1 && ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
	missing="$missing postgresql"
fi
if [ -z "$missing" ]; then
	exit 0
fi

fail() {
	echo "install-deps: $*" >&2
	echo "install-deps: install redis-server 7.0 or newer, a C compiler (cc) with the headers of libc, node 18 or newer, npm and PostgreSQL 15 or newer, so that they are on PATH, and run this again" >&2
	exit 1
}

command -v apt-get >/dev/null 2>&1 || fail "missing:$missing, and this machine has no apt-get"

sudo=
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null 2>&1 || fail "missing:$missing, and installing takes root or sudo"
	sudo="sudo"
fi

# Debian asks this file before a package may start a service; 101 means no. One
# that is there already is put back afterwards, whatever happens.
policy=/usr/sbin/policy-rc.d
aside="$policy.before-redlock"
restore() {
	$sudo rm -f "$policy"
	if [ -e "$aside" ]; then
		$sudo mv "$aside" "$policy"
	fi
}
[ ! -e "$aside" ] || fail "$aside is left from an earlier run: move it back to $policy"
trap restore EXIT
trap 'exit 1' HUP INT TERM
if [ -e "$policy" ]; then
	$sudo mv "$policy" "$aside"
fi
printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
$sudo chmod 755 "$policy"

# </dev/null: a question would wait for ever where nobody can answer.
$sudo env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null ||
	fail "apt-get update failed"
# Unquoted: it is a list of words.
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing </dev/null ||
	fail "apt-get install$missing failed"
for service in redis-server postgresql; do
	case $missing in
	*"$service"*)
		$sudo update-rc.d "$service" disable >/dev/null ||
			fail "the service $service could not be disabled"
		;;
	esac
done
