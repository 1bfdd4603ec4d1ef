#!/bin/sh
# Hands cities.sh the passwords in a file that the server's user can read. The superuser's own password is random
# and kept nowhere: only the container's own socket, which asks for none, lets the superuser in.
set -eu
install -o postgres -m 400 /run/pricemesh/cities /tmp/cities
POSTGRES_PASSWORD=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export POSTGRES_PASSWORD
exec docker-entrypoint.sh "$@"
