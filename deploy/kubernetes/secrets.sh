#!/bin/sh
# Prints new Secrets for the demo as YAML, with `pricemesh` on the PATH; docs/kubernetes.md shows how to run it in the image:
#   secrets.sh lisbon porto | kubectl create --namespace pricemesh-demo --filename -
#
#   CITY-secrets       database-url, gossip-secrets, keys.toml (hashes of API keys)
#   postgres-secrets   cities: the password of each city's role
#   NAME-key           key: the API key of driver, prometheus and operator
# Use `create`, not `apply`: what exists is kept.
set -eu
umask 077
[ $# -gt 0 ] || { echo "usage: secrets.sh CITY..." >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

secret() { # NAME; the fields follow
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\nstringData:\n' "$1"
}

field() { # NAME: standard input
  printf '  %s: |-\n' "$1"
  sed 's/^/    /'
}

new_key() { # NAME SCOPES
  pricemesh keys new --file "$folder/keys.toml" --name "$1" --scope "$2" >"$folder/$1" 2>"$folder/notes" ||
    { cat "$folder/notes" >&2; exit 1; }
  secret "$1-key"
  field key <"$folder/$1"
}

new_key driver price,feedback,read
new_key prometheus read
new_key operator admin
pricemesh keys gossip >"$folder/gossip"
for city in "$@"; do
  password=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
  login=$city:$password
  echo "$login" >>"$folder/cities"
  secret "$city-secrets"
  echo "postgresql+psycopg://$login@postgres/$city" | field database-url
  field gossip-secrets <"$folder/gossip"
  field keys.toml <"$folder/keys.toml"
done
secret postgres-secrets
field cities <"$folder/cities"
