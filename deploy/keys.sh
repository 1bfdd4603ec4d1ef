#!/bin/sh
# Makes every secret of the containers once, each in a volume that only its readers mount:
#   /secrets/cities/CITY  .env (gossip secret), pgpass (the city's own database), keys.toml (hashes of API keys)
#   /secrets/postgres     cities: the password of each city's role
#   /secrets/callers      NAME: the API key of that caller, in clear; keys.toml
# What exists is kept.
#
#   keys.sh                   make what is missing
#   keys.sh new NAME SCOPES   an API key more, such as `new shop price,feedback`; cities know it at once
#   keys.sh revoke NAME       take it back; cities refuse it at once
#   keys.sh show NAME         print it
#   keys.sh gossip            print the gossip secret
set -eu
umask 077
export HOME=/tmp
user=10001       # of the pricemesh image
prometheus=65534 # group of the prometheus image
cd /secrets

new() {
  pricemesh keys new --file callers/keys.toml --name "$1" --scope "$2" >"callers/$1.new" 2>/tmp/said ||
    { cat /tmp/said >&2; exit 1; }
  mv "callers/$1.new" "callers/$1"
}

revoke() {
  pricemesh keys revoke --file callers/keys.toml "$(cut -d_ -f2 "callers/$1")"
  rm "callers/$1"
}

put() { # FILE: standard input, for a city to read, there whole or not at all
  cat >"$1.new"
  chown "$user:$user" "$1.new"
  chmod 400 "$1.new"
  mv "$1.new" "$1"
}

tell_cities() {
  for city in cities/*; do put "$city/keys.toml" <callers/keys.toml; done
}

gossip_secret() { # the one that some city has, or a new one
  cat cities/*/.env 2>/dev/null | grep -m1 '^PRICEMESH_GOSSIP_SECRETS=' ||
    echo "PRICEMESH_GOSSIP_SECRETS=$(pricemesh keys gossip)"
}

database() { # CITY
  touch postgres/cities
  grep -q "^$1:" postgres/cities ||
    echo "$1:$(python -c 'import secrets; print(secrets.token_hex(24))')" >>postgres/cities
  echo "postgres:5432:$1:$1:$(sed -n "s/^$1://p" postgres/cities)" | put "cities/$1/pgpass"
}

make_missing() {
  [ -e callers/driver ] || new driver price,feedback,read
  [ -e callers/prometheus ] || new prometheus read
  [ -e callers/operator ] || new operator admin
  chmod 755 callers # each reads its own key, nobody the operator's
  chown "$user" callers/driver
  chgrp "$prometheus" callers/prometheus
  chmod 440 callers/prometheus
  tell_cities
  for city in cities/*; do
    [ -e "$city/.env" ] || gossip_secret | put "$city/.env"
    database "${city#cities/}"
  done
}

case ${1:-} in
  "")
    make_missing
    echo "the secrets are in place"
    ;;
  new)
    [ ! -e "callers/$2" ] || { echo "there is a key $2: revoke it first" >&2; exit 2; }
    new "$2" "$3"
    tell_cities
    cat "callers/$2"
    ;;
  revoke)
    revoke "$2"
    tell_cities
    ;;
  show) cat "callers/$2" ;;
  gossip) gossip_secret | cut -d= -f2 ;;
  *)
    sed -n '/^#   keys.sh/s/^#   //p' "$0" >&2
    exit 2
    ;;
esac
