#!/bin/sh
# Installs what the tests need and the machine does not have: redis-server.
#
# Usage:    scripts/install-deps.sh
# Changes:  nothing if redis-server is on PATH. Otherwise installs Debian's (or
#           Ubuntu's) package of that name, as root or through sudo. The service
#           that comes with the package is neither started nor enabled: the
#           tests start servers of their own.
# Exit:     0 when redis-server is there; 1, with a message, when it cannot be
#           installed.
set -eu

if command -v redis-server >/dev/null 2>&1; then
	exit 0
fi

fail() {
	echo "install-deps: $*" >&2
	echo "install-deps: install redis-server 7.0 or newer, so that it is on PATH, and run this again" >&2
	exit 1
}

command -v apt-get >/dev/null 2>&1 || fail "redis-server is missing, and this machine has no apt-get"

sudo=
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null 2>&1 || fail "redis-server is missing, and installing it takes root or sudo"
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
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends redis-server </dev/null ||
	fail "apt-get install redis-server failed"
$sudo update-rc.d redis-server disable >/dev/null ||
	fail "the service redis-server could not be disabled"
